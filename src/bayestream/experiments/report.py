"""The report: every claim of the paper beside what was found, on one page that stands alone."""

from __future__ import annotations

import base64
import csv
import html
import math
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bayestream.evaluation import Results
from bayestream.experiments import work
from bayestream.experiments.nouns import Experiment, Rows, Scale
from bayestream.experiments.verdicts import AIM, RULE, Claim, Judgement

_MEANS = {  # of the paper's claims, and of our aims
    "beyond": ("better than the paper says", "ahead of the paper's"),
    "holds": ("as the paper says", "reached"),
    "open": ("too close to call", "too close to call"),
    "fails": ("not as the paper says", "not reached"),
}
_ROWS = 12  # of a table that are shown at once; the rest unfolds
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fdfcf9; --soft: #6b6b6b;
  --line: #ddd8cc; --beyond: #00664b; --holds: #00527d; --open: #7a5900; --fails: #a63c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9e6df; --paper: #191816; --soft: #a5a096;
  --line: #3a3732; --beyond: #4dcaa5; --holds: #72bdf0; --open: #e5b84c; --fails: #ff9a66; } }
body { font: 17px/1.55 Georgia, serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 58rem; padding: 1.5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
p, li { max-width: 42rem; } .soft { color: var(--soft); font-size: .85rem; }
.counts { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; list-style: none; }
.counts li { border: 1px solid var(--line); border-radius: .4rem; padding: .6rem 1rem;
  min-width: 7rem; }
.counts b { display: block; font-size: 2rem; line-height: 1.1; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; width: 100%;
  font-variant-numeric: tabular-nums; } th, td { text-align: left; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); vertical-align: top; } .n { text-align: right; }
.beyond { color: var(--beyond); } .holds { color: var(--holds); } .open { color: var(--open); }
.fails { color: var(--fails); } td.verdict { font-weight: bold; white-space: nowrap; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; background: white; }
figcaption { color: var(--soft); font-size: .85rem; }
a { color: inherit; } details summary { cursor: pointer; }
@media (max-width: 40rem) { .claims th { display: none; } .claims tr, .claims td { display: block; }
  .claims tr { border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .claims td { border: 0; padding: .1rem 0; } .claims td.n { text-align: left; }
  .claims td[data-is]:not(:empty)::before { content: attr(data-is) ": "; color: var(--soft); } }
"""


class _Group(NamedTuple):
    """An experiment, how its claims fared, and what its trials took."""

    experiment: Experiment
    claims: list[tuple[Claim, Judgement | None]]
    trials: Counter[tuple[str, str]]  # how many there are of each line, world by world
    hours: float  # by the clock of the process that ran each

    @property
    def verdicts(self) -> list[tuple[Claim, Judgement]]:
        return [(claim, verdict) for claim, verdict in self.claims if verdict is not None]


def _group(experiment: Experiment, found: Results) -> _Group:
    claims = [(claim, claim.judge(found)) for claim in experiment.claims]
    columns = (found[name] for name in ("world", "method", "trial"))
    trials = Counter((world, line) for world, line, _ in set(zip(*columns, strict=True)))
    seconds = found.where(metric="wall seconds")["value"]
    return _Group(experiment, claims, trials, float(np.sum(seconds)) / 3600)


def write(experiments: Sequence[Experiment], scale: Scale, folder: Path) -> Path:
    """Pictures, tables and `report.html` of what is finished, in a folder."""
    groups: list[_Group] = []
    parts: list[str] = []
    for experiment in experiments:
        found = work.found(experiment, scale, folder)
        if not len(found):
            continue
        groups.append(_group(experiment, found))
        pictures = experiment.draw(found, folder / "figures" / experiment.id)
        tables = {name: rows for name, rows in experiment.tables(found).items() if rows}
        for name, rows in tables.items():
            _save(rows, folder / "tables" / f"{experiment.id}-{name}.csv")
        parts.append(_section(groups[-1], pictures, tables))
    page = _page(groups, scale, parts)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / ".report.html"
    partial.write_text(page, "utf-8")
    return partial.replace(folder / "report.html")


def _page(groups: Sequence[_Group], scale: Scale, parts: Sequence[str]) -> str:
    judged = [pair for group in groups for pair in group.verdicts]
    own = [judgement for claim, judgement in judged if claim.source == AIM]
    theirs = [judgement for claim, judgement in judged if claim.source != AIM]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>LO-FI, reproduced</title><style>{_STYLE}</style></head><body>
<h1>The low-rank extended Kalman filter, reproduced</h1>
<p>Every figure and table of <a href="https://arxiv.org/abs/2305.19535">Chang et al. 2023</a> that
has been run here, beside what the paper says of it. Of its claims, {len(theirs)} were judged:</p>
{_counts(theirs, 0)}
<p>Of the aims that we set ourselves beside them, {len(own)}:</p>
{_counts(own, 1)}
<p><b>The rule.</b> {RULE}</p>
<p>Lines named <code>…-ls-…</code> are LO-FI with a line search, <code>self-tuning</code> is an
average over settings that was not tuned at all; both are ours. Bands and ± are standard errors over
trials unless a table says otherwise. Nothing was tuned on test data.</p>
{_overview(groups)}
<p class="soft">Claims of the paper and aims of ours together; hours are those of a trial's own
process, beside whatever else its machine did. Scale {scale}, seeds from 0 up. Page made {made};
commit {_commit()}; {machine}, JAX {jax.__version__}. Trials of earlier commits and other machines
of two cores are kept.</p>
{"".join(parts)}</body></html>"""


def _overview(groups: Sequence[_Group]) -> str:
    """A row an experiment: how its claims fared, and what its trials took."""
    head = "<th>experiment"
    head += "".join(f'<th class="n">{name}' for name in (*_MEANS, "trials", "hours"))
    rows = "".join(
        _overview_row(
            f'<a href="#{group.experiment.id}">{html.escape(group.experiment.title)}</a>',
            [judgement for _, judgement in group.verdicts],
            group.trials.total(),
            group.hours,
        )
        for group in groups
    )
    judged = [judgement for group in groups for _, judgement in group.verdicts]
    trials = sum(group.trials.total() for group in groups)
    rows += _overview_row("all", judged, trials, sum(group.hours for group in groups))
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _overview_row(name: str, judged: Sequence[Judgement], trials: int, hours: float) -> str:
    counts = Counter(judgement.verdict for judgement in judged)
    cells = "".join(f'<td class="n {kind}">{counts[kind] or ""}' for kind in _MEANS)
    return f'<tr><td>{name}{cells}<td class="n">{trials:,}<td class="n">{hours:.1f}</tr>'


def _counts(judged: Sequence[Judgement], whose: int) -> str:
    counts = Counter(judgement.verdict for judgement in judged)
    boxes = "".join(
        f'<li class="{name}"><b>{counts[name]}</b>{name}<br>'
        f'<span class="soft">{means[whose]}</span></li>'
        for name, means in _MEANS.items()
    )
    return f'<ul class="counts">{boxes}</ul>'


def _section(group: _Group, pictures: Sequence[Path], tables: Any) -> str:
    experiment, claims, *_ = group
    fewest_and_most = dict.fromkeys((min(group.trials.values()), max(group.trials.values())))
    trials = " to ".join(map(str, fewest_and_most))
    rows = "".join(_claim(*pair) for pair in claims)
    head = "<tr><th>claim<th>paper<th>ours<th>difference<th>verdict</tr>"
    images = "".join(_figure(path, experiment.captions.get(path.stem, "")) for path in pictures)
    return f"""<h2 id="{experiment.id}">{html.escape(experiment.title)}</h2>
<p>{html.escape(experiment.about)}</p><p class="soft">Trials a line: {trials}.</p>
<div class="scroll"><table class="claims">{head}{rows}</table></div>{images}
{"".join(_table(name, body) for name, body in tables.items())}"""


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption or path.stem.replace("-", " "))
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _claim(claim: Claim, found: Judgement | None) -> str:
    text = f'{html.escape(claim.text)}<br><span class="soft">{html.escape(claim.source)}</span>'
    if found is None:
        return f'<tr><td>{text}<td><td class="soft" colspan="3">not run yet</tr>'
    if found.verdict == "fails" and claim.tried:
        text += f'<br><span class="soft">Tried: {html.escape(claim.tried)}</span>'
    far = "" if math.isnan(found.difference) else _difference(found.difference)
    return (
        f'<tr><td>{text}<td data-is="paper">{html.escape(found.paper)}'
        f'<td data-is="ours">{html.escape(found.ours)}<td class="n" data-is="difference">{far}'
        f'<td class="verdict {found.verdict}">{found.verdict}</tr>'
    )


def _difference(errors: float) -> str:
    """In standard errors; between numbers that hardly vary there may be any number of them.

    >>> _difference(-2.13), _difference(3e14)
    ('-2.1', '> 99')
    """
    return f"{errors:+.1f}" if abs(errors) < 99 else "> 99" if errors > 0 else "< -99"


def _table(name: str, rows: Rows) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(column)}" for column in rows[0])
    lines = ["".join(_cell(value) for value in row.values()) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    table = f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
    opened = " open" if len(rows) <= _ROWS else ""
    return f"<details{opened}><summary>Table “{name}”, {len(rows)} rows</summary>{table}</details>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:.4g}'
    kind = f' class="verdict {value}"' if value in _MEANS else ""
    return f"<td{kind}>{'' if value is None else html.escape(str(value))}"


def _save(rows: Rows, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as lines:
        write = csv.DictWriter(lines, list(rows[0]) if rows else [], lineterminator="\n")
        write.writeheader()
        for row in rows:
            shown = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()}
            write.writerow(shown)


def _processor() -> str:
    """What the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
