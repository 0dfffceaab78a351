"""The core serves elsewhere: a debate with nothing but core, protocols and a plain function that answers a chat."""

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import sys

class Absent:
    """An environment without the heavy packages."""

    names = {"torch", "vllm", "hydra", "omegaconf", "datasets", "transformers", "polars", "pyarrow", "numpy", "rich"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Absent())

from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import ask_one_by_one
from debate_local.core.setting import Setting
from debate_local.core.task import Metric, grade_answers
from debate_local.core.transcript import Answer, Item
from debate_local.protocols.debate import debate


class Doubling:
    name, metric, votable, answer_format = "doubling", Metric("accuracy"), True, "Give the number only."

    def items(self):
        return [Item("q1", "Twice 21?", "42")]

    def ask(self, item):
        return f"{item.question} {self.answer_format}"

    def read(self, text, item):
        return Answer(text, text, "all of it") if text.isdigit() else Answer.none("no number")

    def same(self, a, b):
        return a.key == b.key

    def score(self, answer, item):
        return float(answer.key == item.target)

    def grade(self, transcript, item):
        return grade_answers(transcript, item, self.score)


asked = []

def chat(messages):
    asked.append(messages)
    # Two agents of three are wrong at first; having read the others, all are right.
    return "42" if len(asked) in (1, 4, 5, 6) else "41"

task = Doubling()
(item,) = task.items()
setting = Setting(task, templates=facts_of(debate).checked_templates({}))
transcript = ask_one_by_one(debate(item, setting, agents=3, rounds=2), chat)
grade = ask_one_by_one(task.grade(transcript, item), chat)
print(len(asked), transcript.decision.answer.value, grade.score)
print([turn.answer.key for turn in transcript.turns])
print("41" in asked[3][-1]["content"], asked[3][0]["content"])
assert not Absent.names & set(sys.modules)
'''


def test_a_debate_runs_on_a_plain_chat_function_without_the_heavy_packages() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "6 42 1.0",
        "['42', '41', '41', '42', '42', '42']",
        "True Twice 21? Give the number only.",
    ]
