"""What a sweep's table says: one line a cell, and the one comparison that matters, by one rule for all reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from debate_local.analysis.statistics import Estimate, mean, paired_difference
from debate_local.sweep.store import Run, Sweep, SweepCell


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One cell in numbers. Costs are means an item, as if the cell had been run alone."""

    cell: SweepCell
    label: str
    score: Estimate
    no_answer: float
    calls: float
    prompt_tokens: float
    generated_tokens: float
    reasoning_share: float
    cut_thoughts: int
    truncated: int
    too_long: int
    failed: int
    empty: int
    errors: int
    turns: int
    ties: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best debate against its equal-cost control. difference: best minus control, over the items both scored.

    also: the same against other controls at equal cost, by name: votes that its tokens pay for, and where several
    models debated the best of them alone (the best on these items, which favours it). among: of how many debates it is
    the best; chosen on the items that it is compared on, it looks better than it is.
    """

    best: CellSummary
    control: CellSummary
    difference: Estimate
    also: tuple[tuple[str, CellSummary, Estimate], ...] = ()
    among: int = 1

    @property
    def text(self) -> str:
        """One line, in points of the metric."""
        d = self.difference
        better = d.value > 0 if self.best.cell.run.record["metric"]["higher_is_better"] else d.value < 0
        told = "too few items to tell" if not d.tells else f"debate is {'better' if better else 'worse'}"
        chosen = f" of {self.among}, chosen on these items" if self.among > 1 else ""
        return (
            f"best debate{chosen}: {self.best.label} ({percent(self.best.score.value)}) - equal-cost control: "
            f"{self.control.label} ({percent(self.control.score.value)}): difference {100 * d.value:+.1f} points "
            f"[{100 * d.low:+.1f}, {100 * d.high:+.1f}], {d.n} items: {told}"
        )

    @property
    def more(self) -> list[str]:
        """A line for each further control."""
        return [
            f"against {name}: {control.label} ({percent(control.score.value)}): difference {100 * d.value:+.1f} points "
            f"[{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
            for name, control, d in self.also
        ]


def summarise(sweep: Sweep) -> list[CellSummary]:
    """One summary for each run that is finished, in the order of the plan."""
    return [_summary(cell) for cell in sweep.cells if cell.run.has_tables]


def _summary(cell: SweepCell) -> CellSummary:
    table = cell.run.debates
    scored = table.filter(table["error"].is_null())
    low, high = cell.run.record["metric"]["range"]
    return CellSummary(
        cell=cell,
        label=cell.run.label,
        score=mean(scored["score"].to_list(), low, high) if len(scored) else Estimate(float("nan"), low, high, 0),
        no_answer=_mean(scored["no_answer"].to_list()),
        calls=_mean(scored["calls"].to_list()),
        prompt_tokens=_mean(scored["prompt_tokens"].to_list()),
        generated_tokens=_mean(scored["generated_tokens"].to_list()),
        reasoning_share=sum(scored["reasoning_tokens"]) / max(1.0, sum(scored["generated_tokens"])),
        cut_thoughts=int(scored["cut_thoughts"].sum()),
        truncated=int(scored["truncated"].sum()),
        too_long=int(scored["too_long"].sum()),
        failed=int(scored["failed"].sum()),
        empty=int(scored["empty"].sum()),
        errors=len(table) - len(scored),
        turns=len(cell.run.turns),
        ties=int((scored["tied"].list.len() > 0).sum()),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


# As many samples as calls: those that were made, where debates ended early, else those that might have been.
EQUAL_CALLS = ("sc_calls_made", "sc_calls")


def equal_cost_control(sweep: Sweep, run: Run, names: Sequence[str] = EQUAL_CALLS) -> SweepCell | None:
    """The cell that this run must beat at equal cost, by the first name that there is; None where there is none."""
    found = (cell for name in names for cell in sweep.cells if (name, run.id) in cell.controls)
    return next((cell for cell in found if cell.run.done), None)


def compare(a: Run, b: Run) -> Estimate | None:
    """The paired difference a - b over the items that both scored; None without a common item."""
    ours = {i: s for i, s in zip(a.debates["item_id"], a.debates["score"], strict=True) if s is not None}
    theirs = {i: s for i, s in zip(b.debates["item_id"], b.debates["score"], strict=True) if s is not None}
    both = [i for i in ours if i in theirs]
    if not both:
        return None
    low, high = a.record["metric"]["range"]
    return paired_difference([ours[i] for i in both], [theirs[i] for i in both], high - low)


def verdict(sweep: Sweep) -> Verdict | None:
    """The rule of all reports: the best cell with an exchange (the cheaper one when equal) against its `sc_calls`.

    A cell in which nobody hears anybody is no debate, whatever its protocol. Cells of several tasks are not compared: a
    sweep of one task is given (`by_task`). None without such a cell.
    """
    by_run = {summary.cell.run.id: summary for summary in summarise(sweep)}
    candidates = []
    for summary in by_run.values():
        control = equal_cost_control(sweep, summary.cell.run)
        if control is not None and control.run.id in by_run and summary.score.n and _has_exchange(summary.cell.run):
            candidates.append((summary, by_run[control.run.id]))
    if not candidates:
        return None
    sign = 1 if candidates[0][0].cell.run.record["metric"]["higher_is_better"] else -1
    best, control_summary = max(candidates, key=lambda pair: (sign * pair[0].score.value, -pair[0].calls))
    difference = compare(best.cell.run, control_summary.cell.run)
    if difference is None:
        return None
    return Verdict(best, control_summary, difference, tuple(_also(best, list(by_run.values()), sign)), len(candidates))


FURTHER = {"sc_tokens_out": "equal tokens out", "sc_tokens_all": "equal tokens", "sc_member": "the best member alone"}


def _also(
    best: CellSummary, summaries: Sequence[CellSummary], sign: int
) -> Iterator[tuple[str, CellSummary, Estimate]]:
    """The best debate against its further controls; of several under one name the best one counts."""
    for name, told in FURTHER.items():
        of_it = [s for s in summaries if (name, best.cell.run.id) in s.cell.controls and s.score.n]
        control = max(of_it, key=lambda summary: sign * summary.score.value, default=None)
        if control is not None and (difference := compare(best.cell.run, control.cell.run)) is not None:
            yield told, control, difference


def _has_exchange(run: Run) -> bool:
    return bool((run.turns["heard"].list.len() > 0).any())


def by_task(sweep: Sweep) -> list[Sweep]:
    """The sweep in parts that can be compared: one for each task and set of rows."""
    parts: dict[tuple[str, str], list[SweepCell]] = {}
    for cell in sweep.cells:
        record = cell.run.record
        parts.setdefault((record["task"]["name"], record.get("rows_hash", "")), []).append(cell)
    return [Sweep(sweep.folder, sweep.record, tuple(cells)) for cells in parts.values()]


def points(estimate: Estimate, sign: str = "") -> str:
    """A value in points with its interval: `43.8 [23, 67]`."""
    value, low, high = (100 * x for x in (estimate.value, estimate.low, estimate.high))
    return f"{value:{sign}.1f} [{low:{sign}.0f}, {high:{sign}.0f}]"


def percent(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f} %"
