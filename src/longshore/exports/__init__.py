"""What is held, written out: manifests, checksum lists, bags, crates, link trees. Everything streams."""
