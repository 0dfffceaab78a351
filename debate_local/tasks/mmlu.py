"""MMLU: questions with four options on 57 subjects, 14,042 to test on, 285 as examples.

A row (of our own making, in the columns of cais/mmlu):
  {"question": "Which of these is a prime number?", "subject": "elementary_mathematics",
   "choices": ["9", "15", "17", "21"], "answer": 2}

Other forms: a folder with a CSV file a subject, each with the header question,choice0,...,choice3,answer (0 to 3) or,
as first published, without a header and with letters. The group is the subject.

Source: hendrycks/test, MIT; cais/mmlu on the hub. The stems of 14 questions of business_ethics were lost (their
options are bare lists such as 1,2,3): they are suspect. Copies that went through a spreadsheet have other options
(`None of the above` for `None`, 1:04 for 1:4): do not score with them.
"""

import re

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build, place_of
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

_NAMES = """
    abstract_algebra anatomy astronomy business_ethics clinical_knowledge college_biology college_chemistry
    college_computer_science college_mathematics college_medicine college_physics computer_security conceptual_physics
    econometrics electrical_engineering elementary_mathematics formal_logic global_facts high_school_biology
    high_school_chemistry high_school_computer_science high_school_european_history high_school_geography
    high_school_government_and_politics high_school_macroeconomics high_school_mathematics high_school_microeconomics
    high_school_physics high_school_psychology high_school_statistics high_school_us_history high_school_world_history
    human_aging human_sexuality international_law jurisprudence logical_fallacies machine_learning management marketing
    medical_genetics miscellaneous moral_disputes moral_scenarios nutrition philosophy prehistory
    professional_accounting professional_law professional_medicine professional_psychology public_relations
    security_studies sociology us_foreign_policy virology world_religions
"""
SUBJECTS = tuple(_NAMES.split())
ORIGIN = Origin(
    task="mmlu",
    title="MMLU",
    repository="hendrycks/test",
    licence="MIT",
    layouts=(
        ("question", "choices", "answer"),
        ("question", "choice0", "choice1", "choice2", "choice3", "answer"),
        ("question", "A", "B", "C", "D", "answer"),
    ),
    sizes={"test": 14042, "dev": 285, "validation": None},
    hub="cais/mmlu",
    config="all",
    untried="the hub's id, configuration and columns; the files without a header, of which only a description was seen",
    parts=SUBJECTS,
    part_column="subject",
    headerless=("question", "A", "B", "C", "D", "answer"),
    download=(
        "Download the folder test of the data of the GitHub repository hendrycks/test (one CSV file a subject), or the "
        "Parquet file of cais/mmlu (folder all) from the hub, keep it anywhere, and set task.path to it."
    ),
)


def mmlu(
    path: str | None = None,
    split: str = "test",
    subjects: list[str] | None = None,
    shuffle_options: int | None = None,
    revision: str | None = None,
) -> Task:
    """Load MMLU, in the order of its file, or subject by subject.

    path: a file with all subjects, or a folder with a file a subject. Without it the hub's `split` (test, dev or
    validation) at `revision`. subjects: only these; null: all 57. shuffle_options: a seed to shuffle the options of
    every item by; null: as in the source. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision, subjects)
    told = [(text(row["question"]), options_of(row), row) for row in loaded.rows]
    ids = item_ids([{"q": q, "o": o, "s": text(row.get("subject"))} for q, o, row in told], ["s", "q", "o"])
    drafts = [
        Draft(
            id,
            question,
            keyed(row["answer"], options),
            options=options,
            group=text(row.get("subject")),
            suspect=_doubt(text(row.get("subject")), options),
        )
        for id, (question, options, row) in zip(ids, told, strict=True)
    ]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


def options_of(row: Row) -> tuple[str, ...]:
    """The options of a row in any of the layouts."""
    if "choices" in row:
        return tuple(text(option) for option in row["choices"])
    return tuple(text(row[name]) for name in (ORIGIN.layouts[1] if "choice0" in row else ORIGIN.layouts[2])[1:5])


def keyed(answer: object, options: tuple[str, ...]) -> int | str:
    """The place of the keyed option from 0, given as such or as a letter; anything else as it is."""
    told = text(answer).strip()
    return int(told) if told.isdecimal() and int(told) < len(options) else place_of(told, options)


_BARE_LIST = re.compile(r"\d(?:\s*,\s*\d)*")


def _doubt(subject: str, options: tuple[str, ...]) -> str:
    lost = subject == "business_ethics" and all(_BARE_LIST.fullmatch(option.strip()) for option in options)
    return "its stem was lost (hendrycks/test#5)" if lost else ""
