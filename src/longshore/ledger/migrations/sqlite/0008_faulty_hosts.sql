-- Since when a host gives nothing but faults: answers that are none, or no answers.
ALTER TABLE hosts ADD COLUMN faulty_since INTEGER;
