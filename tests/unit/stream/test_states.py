"""The table of states: complete, and printed in the documentation as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.stream.states import FAILURES, NEXT, TABLE, Input, State, Verdict

PAGE = Path(__file__).parents[3] / "docs" / "adr" / "0006-turn-machine.md"
RUNNING = [state for state in State if state not in {State.CLOSING, State.OVER}]


def printed() -> str:
    lines = ["| state | what was shown | waits for | suspended by typing | then |", "|---|---|---|---|---|"]
    lines += [
        f"| `{state.name}` | {state.value} | `{row.wait.value}` | {'yes' if row.suspended else 'no'} | "
        f"`{row.verdict.value}` |"
        for state, row in TABLE.items()
    ]
    lines += ["", "| state | input | next |", "|---|---|---|"]
    lines += [
        f"| `{state.name}` | {given.value} | `{following.name}` |"
        for state, row in NEXT.items()
        for given, following in row.items()
    ]
    return "\n".join(lines)


def test_every_running_state_has_a_wait_and_its_ways_out() -> None:
    assert list(TABLE) == list(NEXT) == RUNNING


@pytest.mark.parametrize("state", [s for s in RUNNING if s not in {State.FINAL, State.FAILED}])
def test_plain_text_leads_on_from_every_state_but_the_last_words(state: State) -> None:
    assert NEXT[state][Input.FINAL] is State.FINAL
    assert NEXT[state][Input.CONTENT] is State.SAID
    assert NEXT[state][Input.CONTENT_AFTER_TOOL] is State.SAID_AFTER_TOOL


def test_every_verdict_that_is_a_failure_has_its_message() -> None:
    assert {verdict.value for verdict in Verdict} - {"stop"} <= set(FAILURES)


def test_documentation_prints_the_table_the_machine_runs_on() -> None:
    assert printed() in PAGE.read_text(encoding="utf-8")
