"""Medians, ratios, the table, the JSON file and the picture."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import Figure

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that must be reached, as it was measured."""

    what: str
    seen: float
    wanted: float
    most_is_best: bool

    @property
    def reached(self) -> bool:
        """Whether it was."""
        return self.seen >= self.wanted if self.most_is_best else self.seen <= self.wanted

    def __str__(self) -> str:
        sign = "≥" if self.most_is_best else "≤"
        word = "reached" if self.reached else "NOT reached"
        return f"{self.what}: {self.seen:,.2f} ({sign} {self.wanted:,g}: {word})"


@dataclass(slots=True)
class Scene:
    """One set of files and what each program took for it."""

    name: str
    about: str
    runs: dict[str, list[Figure]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def faster(self, ours: str, peer: str, wanted: float, *, what: str | None = None) -> None:
        """Ask for at least so many times a peer's speed."""
        if peer in self.runs and ours in self.runs:
            seen = self.median(peer) / self.median(ours)
            self.limits.append(Limit(what or f"times as fast as {peer}", seen, wanted, most_is_best=True))

    def at_most(self, ours: str, peer: str, wanted: float) -> None:
        """Ask for at most so much of a peer's time."""
        if peer in self.runs and ours in self.runs:
            seen = self.median(ours) / self.median(peer)
            self.limits.append(Limit(f"time beside {peer}", seen, wanted, most_is_best=False))

    def note(self, peer: str, figure: Figure) -> None:
        """Keep one run."""
        self.runs.setdefault(peer, []).append(figure)
        print(
            f"  {peer:32} {figure.wall_s:8.2f} s  {figure.cpu_s:7.2f} CPU s  {figure.peak_rss_mib:7.1f} MiB", flush=True
        )

    def median(self, peer: str) -> float:
        """Give the median wall time of a program."""
        return statistics.median(run.wall_s for run in self.runs[peer])

    def as_json(self, ours: str) -> dict[str, Any]:
        """Give everything, with how many times faster we are than each."""
        return {
            "name": self.name,
            "about": self.about,
            "runs": {peer: [asdict(run) for run in runs] for peer, runs in self.runs.items()},
            "ours_is_faster_by": {
                peer: round(self.median(peer) / self.median(ours), 3)
                for peer in self.runs
                if ours in self.runs and peer != ours
            },
            "load_average_at_start": round(self.load, 1),
            "must_reach": [asdict(limit) | {"reached": limit.reached} for limit in self.limits],
            **({"extra": self.extra} if self.extra else {}),
        }


def table(scenes: list[Scene], ours: str) -> str:
    """Write the table (median, ratio to ours, CPU, memory) and what had to be reached."""
    lines = ["| set | program | wall s | we are faster by | CPU s | peak MiB |", "|---|---|---|---|---|---|"]
    for scene in scenes:
        for peer, runs in scene.runs.items():
            ratio = f"{scene.median(peer) / scene.median(ours):.2f} ×" if ours in scene.runs and peer != ours else ""
            cpu = statistics.median(run.cpu_s for run in runs)
            rss = max(run.peak_rss_mib for run in runs)
            lines.append(f"| {scene.name} | {peer} | {scene.median(peer):.2f} | {ratio} | {cpu:.2f} | {rss:.0f} |")
        lines.extend(f"| {scene.name} | {name} | | {value} | | |" for name, value in scene.extra.items())
    lines += ["", "Must reach:", ""]
    lines.extend(
        f"- {scene.name} (load {scene.load:.1f} at its start): {limit}" for scene in scenes for limit in scene.limits
    )
    return "\n".join(lines)


def write(scene: Scene, ours: str) -> None:
    """Write one set's JSON, table and picture into bench/results/: sets may run on different days."""
    RESULTS.mkdir(exist_ok=True)
    release = platform.release().partition("-")[0]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {release}"
    body = {"machine": machine, "at": time.strftime("%Y-%m-%d", time.gmtime())} | scene.as_json(ours)
    (RESULTS / f"{scene.name}.json").write_text(json.dumps(body, indent=1) + "\n")
    (RESULTS / f"{scene.name}.md").write_text(f"{scene.about}. {machine}.\n\n{table([scene], ours)}\n")
    picture(scene, ours, RESULTS / f"{scene.name}.png")


def picture(scene: Scene, ours: str, where: Path) -> None:
    """Draw bars: the median wall time of each program."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(scene.runs)
    walls = [scene.median(name) for name in names]
    figure, axis = plt.subplots(figsize=(8, 1.2 + 0.3 * len(names)))
    axis.barh(names, walls, color=["#0b7285" if name.startswith(ours) else "#adb5bd" for name in names])
    axis.set_title(f"{scene.name}: {scene.about} (median seconds)", fontsize=9, loc="left")
    axis.tick_params(labelsize=8)
    axis.invert_yaxis()
    for place, wall in enumerate(walls):
        axis.text(wall, place, f" {wall:.2f} s", va="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(where, dpi=110, metadata={"Software": None})
    plt.close(figure)
