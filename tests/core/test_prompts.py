"""Templates: one pass, strict names, no code. Run: pytest tests/core/test_prompts.py"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError, UndefinedError
from jinja2.exceptions import SecurityError

from debate_local.core.prompts import TemplateFault, check, render
from debate_local.core.protocol import facts_of, protocol
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item
from debate_local.protocols.debate import debate
from tests.fakes import Sums


@pytest.mark.hazard("D24", "D25")
@pytest.mark.parametrize(
    "value",
    [
        "set {1,2}",
        "{{answer}}",
        "{{ 7 * 7 }}",
        "{% for x in y %}",
        "{# gone? #}",
        "\\boxed{5}",
        "%s %(name)s {0}",
        "$name",
        "##neg_ans##",
        "<b>&amp;</b>",
    ],
)
def test_a_value_is_shown_as_it_is_whatever_it_holds(value: str) -> None:
    # Braces stay, and a text that looks like a placeholder is not filled in.
    assert render("Q: {{ question }} A: {{ answer }}", question=value, answer="5") == f"Q: {value} A: 5"


@given(st.text(), st.text())
@settings(deadline=None)
def test_values_never_reach_into_each_other(one: str, other: str) -> None:
    assert render("{{ a }}|{{ b }}", a=one, b=other) == f"{one}|{other}"


def test_braces_of_a_template_come_out_once() -> None:
    # Hazard A13: a doubled brace that is never formatted.
    assert render("Put it in \\boxed{answer}, {{ name }}.", name="Ann") == "Put it in \\boxed{answer}, Ann."


def test_a_name_that_is_not_given_is_an_error_not_a_blank() -> None:
    with pytest.raises(UndefinedError, match="quesion"):
        render("{{ quesion }}", question="?")
    with pytest.raises(UndefinedError, match="txt"):
        render("{% for peer in peers %}{{ peer.txt }}{% endfor %}", peers=[{"text": "hi"}])


def test_a_template_is_checked_before_anything_is_asked() -> None:
    check("ask", "{% for peer in peers %}{{ peer.text }}{% endfor %} {{ question }}", ["question", "peers"])
    with pytest.raises(TemplateFault, match="'ask' uses quesion; it may use: peers, question"):
        check("ask", "{{ quesion }}", ["question", "peers"])
    with pytest.raises(TemplateFault, match="'ask', line 2"):
        check("ask", "first\n{% for %}", [])


@pytest.mark.parametrize("template", ["{{ ''.__class__.__mro__ }}", "{{ values.append(1) }}", "{{ f.__globals__ }}"])
def test_a_template_cannot_reach_python(template: str) -> None:
    with pytest.raises((SecurityError, TemplateError)):
        render(template, values=[], f=check)


def test_overrides_replace_a_protocols_templates_and_unknown_ones_are_refused() -> None:
    facts = facts_of(debate)
    templates = facts.checked_templates({"verify": "Again: {{ question }}"})
    assert templates["verify"] == "Again: {{ question }}"
    assert templates["debate"] == facts.templates["debate"]
    with pytest.raises(ValueError, match=r"no template is called verfy; this protocol's templates: .*debate, .*verify"):
        facts.checked_templates({"verfy": ""})
    with pytest.raises(TemplateFault, match="peers"):
        facts.checked_templates({"verify": "{{ peers }}"})


def test_answer_format_is_known_to_every_template() -> None:
    setting = Setting(Sums(), templates={"t": "{{ name }}. {{ answer_format }}"})
    assert setting.render("t", name="Ann") == f"Ann. {Sums.answer_format}"
    facts_of(debate).checked_templates({"debate": "{{ answer_format }}"})


def test_a_function_that_is_no_protocol_says_so() -> None:
    def lonely(item: Item, setting: Setting) -> Debate:
        raise NotImplementedError

    with pytest.raises(ValueError, match=r"lonely is no protocol: decorate it with @protocol"):
        facts_of(lonely)
    assert facts_of(protocol(calls=lambda: 1, agents=None)(lonely)).calls() == 1
