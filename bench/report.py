"""Medians, ratios, the table, the JSON file and the picture."""

from __future__ import annotations

import json
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import Figure

RESULTS = Path(__file__).parent / "results"


@dataclass(slots=True)
class Scene:
    """One set of files and what each program took for it."""

    name: str
    about: str
    runs: dict[str, list[Figure]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

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
            **({"extra": self.extra} if self.extra else {}),
        }


def table(scenes: list[Scene], ours: str) -> str:
    """Write the table: median, ratio to ours, CPU, memory."""
    lines = ["| set | program | wall s | we are faster by | CPU s | peak MiB |", "|---|---|---|---|---|---|"]
    for scene in scenes:
        for peer, runs in scene.runs.items():
            ratio = f"{scene.median(peer) / scene.median(ours):.2f} ×" if ours in scene.runs and peer != ours else ""
            cpu = statistics.median(run.cpu_s for run in runs)
            rss = max(run.peak_rss_mib for run in runs)
            lines.append(f"| {scene.name} | {peer} | {scene.median(peer):.2f} | {ratio} | {cpu:.2f} | {rss:.0f} |")
        lines.extend(f"| {scene.name} | {name} | | {value} | | |" for name, value in scene.extra.items())
    return "\n".join(lines)


def write(scenes: list[Scene], ours: str) -> None:
    """Write the JSON, the table and the picture into bench/results/."""
    RESULTS.mkdir(exist_ok=True)
    body = {
        "machine": f"{platform.machine()}, Linux {platform.release()}",
        "scenes": [scene.as_json(ours) for scene in scenes],
    }
    (RESULTS / "bench.json").write_text(json.dumps(body, indent=1) + "\n")
    (RESULTS / "bench.md").write_text(table(scenes, ours) + "\n")
    picture(scenes, ours, RESULTS / "bench.png")


def picture(scenes: list[Scene], ours: str, where: Path) -> None:
    """Draw bars: wall time of each program as a share of the slowest of its set."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drawn = [scene for scene in scenes if len(scene.runs) > 1]
    if not drawn:
        return
    figure, axes = plt.subplots(len(drawn), 1, figsize=(8, 1.2 + 1.3 * len(drawn)), squeeze=False)
    for scene, axis in zip(drawn, axes[:, 0], strict=True):
        names = list(scene.runs)
        walls = [scene.median(name) for name in names]
        axis.barh(names, walls, color=["#0b7285" if name == ours else "#adb5bd" for name in names])
        axis.set_title(f"{scene.name}: {scene.about}", fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
        axis.invert_yaxis()
        for place, wall in enumerate(walls):
            axis.text(wall, place, f" {wall:.2f} s", va="center", fontsize=8)
    figure.tight_layout()
    figure.savefig(where, dpi=110)
