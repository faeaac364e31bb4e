"""Turns through the whole service: real HTTP, the real demo agent, PostgreSQL."""

from __future__ import annotations

from tests.support.service import RunningService, deliveries, errors, said


async def test_a_turn_streams_the_agents_words_and_is_in_the_history(service: RunningService) -> None:
    chunks = await service.turn("hello there")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert said(chunks).startswith("You said: hello there")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    user, answer = await service.history()
    assert (user["role"], user["content"]) == ("user", "hello there")
    assert (answer["role"], answer["content"]) == ("assistant", said(chunks))
