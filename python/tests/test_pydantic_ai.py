"""The message history of PydanticAI."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import annals
from annals.pydantic_ai import MessageHistory


def dumped(messages: list[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


def agent() -> Agent[None, str]:
    made = Agent(TestModel(), instructions="Answer briefly.")

    @made.tool_plain
    def weather(city: str) -> dict[str, Any]:
        """The weather of a city."""
        return {"city": city, "degrees": 7, "sky": ["grey", None]}

    return made


def test_a_history_is_loaded_as_the_agent_made_it(store: annals.Store) -> None:
    history = MessageHistory(store.thread("alice"))
    assert history.load() == []
    all_messages: list[ModelMessage] = []
    for prompt in ("Weather in Bern?", "And in Basel?"):
        result = agent().run_sync(prompt, message_history=history.load())
        history.append(result)
        all_messages = result.all_messages()
        assert dumped(history.load()) == dumped(all_messages)
        assert history.load() == all_messages
    assert len(all_messages) == 6
    roles = [message["type"] for message in store.at("alice").items()]
    assert roles.count("human") == 2 and roles.count("tool") == 1, "they are messages of the thread"
    assert [hit.thread for hit in store.search("Basel")] == ["alice"]


def test_every_kind_of_part_survives(store: annals.Store) -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["Look", BinaryContent(b"\x00\xff", media_type="image/png")])]),
        ModelResponse(
            parts=[
                ThinkingPart("hm", id="t1", signature="s", provider_name="p"),
                TextPart("It is grey."),
                ToolCallPart("weather", {"city": "Bern"}),
                ToolCallPart("weather", '{"city": "Basel"}'),
            ],
            model_name="m",
            provider_details={"a": [1, {"b": None}]},
        ),
        ModelRequest(parts=[UserPromptPart("never mind")], instructions="Be brief.", metadata={"k": 1}),
    ]
    history = MessageHistory(store.thread("alice"))
    for message in messages:
        history.append([message])
    assert dumped(history.load()) == dumped(messages)


def test_fork_undo_and_conflict(store: annals.Store) -> None:
    def echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"{len(messages)} messages")])

    talker = Agent(FunctionModel(echo))
    history = MessageHistory(store.thread("alice"))
    history.append(talker.run_sync("one", message_history=history.load()), expect=None)
    seen = history.thread.head()
    history.append(talker.run_sync("two", message_history=history.load()), expect=seen)
    with pytest.raises(annals.ConflictError):
        history.append(talker.run_sync("late", message_history=history.load(seen)), expect=seen)

    other = history.fork("alice-2", at="~1")
    other.append(talker.run_sync("other", message_history=other.load()))
    assert len(history.load()) == len(other.load()) == 4
    assert "other" in str(other.load()) and "other" not in str(history.load())

    assert history.undo() and len(history.load()) == 2
    assert history.redo() and len(history.load()) == 4
    assert history.undo() and not history.undo(), "the first append made the thread"
    assert len(history.load()) == 2


def test_an_asynchronous_program_appends(store: annals.Store) -> None:
    async def talk() -> int:
        histories = [MessageHistory(store.thread(f"t{n}")) for n in range(4)]

        async def turn(history: MessageHistory) -> None:
            for prompt in ("one", "two"):
                result = await agent().run(prompt, message_history=await history.aload())
                await history.aappend(result)

        await asyncio.gather(*map(turn, histories))
        return sum([len(await history.aload()) for history in histories])

    assert asyncio.run(talk()) == 4 * 6
