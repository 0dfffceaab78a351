"""How many independent answers a debate's bill pays for: known only when its debates have ended (law 7).

The bill is the mean over the items of a finished debate cell, the price that of one sample of its `sc_calls` control;
both as if alone. There are two currencies, and a control in each: generated tokens, and all processed tokens (prompts
too). Where debates ended early, so that they made fewer calls than they might have, these are a currency, too. A sweep
buys in a second phase, as soon as whole runs are stored; it ends when all is bought.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from .plan import Plan, PlannedRun, votes_instead
from .store import is_done

Currency = Literal["out", "all", "calls"]
COLUMNS: Mapping[Currency, tuple[str, ...]] = {
    "out": ("generated_tokens",),
    "all": ("generated_tokens", "prompt_tokens"),
    "calls": ("calls",),
}
# Mean tokens (or calls) an item of a run in a currency; None while they are not known.
Bills = Callable[[PlannedRun, Currency], float | None]


@dataclass(frozen=True, slots=True)
class Purchase:
    """The control in one currency of one debate cell. bill: an item's tokens, or calls; price: a sample's.

    capped: the bill would pay for more than max_samples.
    """

    of: str
    currency: Currency
    samples: int
    bill: float
    price: float
    capped: bool

    @property
    def control(self) -> str:
        """Its name among the controls."""
        return MADE_CALLS if self.currency == "calls" else f"sc_tokens_{self.currency}"


# As many samples as debates that may end early made calls; where none ended early, `sc_calls` is that.
MADE_CALLS = "sc_calls_made"
_NAMES = ("sc_tokens_", MADE_CALLS)


def purchases(plan: Plan, bills: Bills) -> list[Purchase]:
    """What can be bought for the debates of a plan whose bills are known, in the order of the plan."""
    by_id = {run.id: run for run in plan.runs}
    found = []
    for votes_run in plan.runs:
        for name, of in votes_run.controls:
            if name == "sc_calls":
                found += [bought for currency in COLUMNS if (bought := _buy(by_id[of], votes_run, currency, bills))]
    order = {run.id: place for place, run in enumerate(plan.runs)}
    return sorted(found, key=lambda purchase: order[purchase.of])


def _buy(run: PlannedRun, sampled: PlannedRun, currency: Currency, bills: Bills) -> Purchase | None:
    bill, cost = bills(run, currency), bills(sampled, currency)
    if bill is None or cost is None or not run.cell.max_samples:
        return None
    if currency == "calls" and bill >= run.calls:
        return None
    price = cost / sampled.calls
    # A price of nothing: every sample failed.
    paid_for = math.floor(bill / price + 1e-9) if price else 1
    affordable = round(bill) if currency == "calls" else paid_for
    most = run.cell.max_samples
    return Purchase(run.id, currency, min(max(affordable, 1), most), bill, price, affordable > most)


def second_phase(plan: Plan) -> bool:
    """Is something to be bought once debates have ended?"""
    return any(name == "sc_calls" and run.cell.max_samples for run in plan.runs for name, _ in run.controls)


def only_bought(run: PlannedRun) -> bool:
    """Is it in the plan for nothing but the second phase?"""
    return not run.asked and all(name.startswith(_NAMES) for name, _ in run.controls)


def with_purchases(plan: Plan, bought: list[Purchase]) -> Plan:
    """The plan with these purchases and no earlier ones."""
    own = {run.id: [control for control in run.controls if not control[0].startswith(_NAMES)] for run in plan.runs}
    runs = {run.id: replace(run, controls=own[run.id]) for run in plan.runs}
    runs = {id: run for id, run in runs.items() if run.asked or run.controls}
    new: dict[str, PlannedRun] = {}
    for purchase in bought:
        debate = runs[purchase.of]
        made = votes_instead(debate, purchase.control, purchase.samples)
        control = runs.get(made.id) or new.setdefault(made.id, made)
        control.controls.append((purchase.control, purchase.of))
    notes = [note for note in plan.notes if not note.startswith(_CAPPED)] + _capped(bought)
    return Plan([*runs.values(), *new.values()], notes)


_CAPPED = "sc_tokens: "


def _capped(bought: list[Purchase]) -> list[str]:
    """A line where bills would pay for more samples than are taken."""
    capped = [purchase for purchase in bought if purchase.capped and purchase.currency != "calls"]
    if not capped:
        return []
    most = max(capped, key=lambda purchase: purchase.bill / purchase.price)
    cells = len({purchase.of for purchase in capped})
    return [
        f"{_CAPPED}the bills of {cells} debate cells would pay for more samples than max_samples={most.samples}, up to "
        f"{most.bill / most.price:,.0f} ({most.bill:,.0f} tokens an item; a sample: {most.price:,.0f}). Their "
        "controls have that many"
    ]


def stored_bills(output: Path) -> Bills:
    """The bills of runs that are stored whole; debates whose own code failed are left out."""

    @cache
    def means(folder: Path) -> dict[str, float] | None:
        import polars as pl

        if not is_done(folder):
            return None
        names = sorted({name for columns in COLUMNS.values() for name in columns})
        table = pl.read_parquet((folder / "debates.parquet").absolute(), glob=False, columns=[*names, "error"])
        scored = table.filter(pl.col("error").is_null())
        return {name: float(scored[name].sum()) / len(scored) for name in names} if len(scored) else None

    def bill(run: PlannedRun, currency: Currency) -> float | None:
        known = means(output / run.id)
        return None if known is None else sum(known[name] for name in COLUMNS[currency])

    return bill
