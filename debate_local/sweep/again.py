"""What is no longer as it was when a run was made."""

from collections.abc import Mapping
from typing import Any

from . import machine
from .plan import PlannedRun


def differences(record: Mapping[str, Any], now: PlannedRun) -> list[str]:
    """What is not as it was, a line each; those that change the result first."""
    found = []
    fresh = now.record()
    if record["rows_hash"] != fresh["rows_hash"]:
        before, after = (f"{one['items']} items with hash {one['rows_hash'][:8]}" for one in (record, fresh))
        found.append(f"rows: {before}; now {after}")
    for name, then in record["engine_identity"].items():
        today = fresh["engine_identity"].get(name)
        if today != then:
            changed = sorted(key for key in {*then, *(today or {})} if then.get(key) != (today or {}).get(key))
            found.append(f"model {name!r}: {', '.join(changed)} differ")
    if record["answer_format"] != fresh["answer_format"]:
        found.append(f"the request for a format: was {record['answer_format']!r}, is {fresh['answer_format']!r}")
    for name, text in now.facts.templates.items():
        if record["templates"].get(name) != text:
            found.append(f"template {name!r}: the default wording is another; the run's own wording is used")
    if record["commit"] != machine.commit():
        found.append(f"code: was {record['commit']}, is {machine.commit()}")
    for name in sorted({*record["versions"], *machine.versions()}):
        then, today = record["versions"].get(name), machine.versions().get(name)
        if then != today:
            found.append(f"{name}: was {then}, is {today}")
    if record["hardware"] != machine.hardware():
        found.append("hardware: another machine (floating-point results may differ)")
    return found
