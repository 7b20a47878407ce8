"""The checkpoint saver for LangGraph."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import operator
import os
import pathlib
import re
import subprocess
import sys
import threading
import uuid
import weakref
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Interrupt, Send
from pydantic import BaseModel
from typing_extensions import Annotated, TypedDict

import annals
from annals.langgraph import AnnalsSaver

HERE = Path(__file__).parent
# Costly tests run a share of their cases, unless all are asked for.
ALL_CASES = os.environ.get("ANNALS_ALL_CASES") == "1"
VALUES = 10_000 if ALL_CASES else 2_000
KILLS = "100" if ALL_CASES else "10"


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    count: Annotated[int, operator.add]


def compiled(saver: BaseCheckpointSaver[Any], answer: str = "answer") -> Any:
    def model(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{answer} {len(state['messages'])}")], "count": 1}

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def config(thread: str = "alice", **more: str) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def texts(values: Any) -> list[str]:
    return [message.content for message in values["messages"]]


def test_the_official_suite_passes(addresses: Iterator[str]) -> None:
    conformance = pytest.importorskip("langgraph.checkpoint.conformance", reason="the suite is not installed")

    @conformance.checkpointer_test(name="AnnalsSaver")
    async def saver() -> Any:
        with AnnalsSaver(next(addresses)) as made:
            yield made

    report = asyncio.run(conformance.validate(saver))
    results = report.results
    assert report.passed_all() and report.conformance_level() == "FULL"
    assert all(result.detected for result in results.values())
    assert sum(result.tests_passed for result in results.values()) == 81
    assert sum(result.tests_failed + result.tests_skipped for result in results.values()) == 0


def test_a_graph_goes_on_in_another_process(address: str) -> None:
    with AnnalsSaver(address) as saver:
        compiled(saver).invoke({"messages": [HumanMessage("one")], "count": 0}, config())
    with AnnalsSaver(address) as saver:
        graph = compiled(saver)
        graph.invoke({"messages": [HumanMessage("two")], "count": 0}, config())
        state = graph.get_state(config())
        assert texts(state.values) == ["one", "answer 1", "two", "answer 3"] and state.values["count"] == 2
        assert len(list(graph.get_state_history(config()))) == 6
    with annals.Store(address) as store:
        thread = store.thread("alice")
        assert [message["type"] for message in thread.at("@").items()] == ["human", "ai", "human", "ai"]
        assert [hit.marked("<", ">") for hit in store.search("answer")] == ["<answer> 3", "<answer> 1"]
        blame = thread.at("@").blame("messages", position=3)
        assert blame is not None and blame.step == 4
        assert store.check().is_sound


def test_an_edit_of_a_list_is_stored_whatever_it_is(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    graph = compiled(saver)
    graph.update_state(config(), {"messages": [HumanMessage(str(n), id=str(n)) for n in range(6)], "count": 0})
    edits: list[list[Any]] = [
        [HumanMessage("edited", id="2")],
        [RemoveMessage("0"), RemoveMessage("3")],
        [AIMessage("new", id="9"), HumanMessage("edited again", id="2")],
        [RemoveMessage("__remove_all__"), SystemMessage("again", id="1")],
        [ToolMessage("t", tool_call_id="c", id="t", artifact={"a": (1, {2})})],
    ]
    for edit in edits:
        graph.update_state(config(), {"messages": edit, "count": 1}, as_node="model")
        cold = compiled(AnnalsSaver(store)).get_state(config()).values
        assert graph.get_state(config()).values == cold
    assert texts(cold) == ["again", "t"] and cold["messages"][1].artifact == {"a": [1, {2}]}


def test_an_edit_in_place_is_noticed(store: annals.Store) -> None:
    def edit(state: State) -> dict[str, Any]:
        first = state["messages"][0]
        first.content = "edited in place"
        first.additional_kwargs["seen"] = True
        return {"messages": [AIMessage("done")]}

    builder = StateGraph(State)
    builder.add_node("edit", edit)
    builder.add_edge(START, "edit")
    graph = builder.compile(checkpointer=AnnalsSaver(store))
    graph.invoke({"messages": [HumanMessage("first", id="1")], "count": 0}, config())
    graph.invoke({"messages": [HumanMessage("second", id="2")], "count": 0}, config())
    message = AnnalsSaver(store).get_tuple(config()).checkpoint["channel_values"]["messages"][0]  # type: ignore[union-attr]
    assert message.content == "edited in place" and message.additional_kwargs == {"seen": True}


def mutate(value: Any, seen: set[int]) -> None:
    """Changes everything that can be changed."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        for member in list(value.values()):
            mutate(member, seen)
        value["mutated"] = "mutated"
    elif isinstance(value, (list, deque)):
        for item in list(value):
            mutate(item, seen)
        value.append("mutated")
    elif isinstance(value, tuple):
        for item in value:
            mutate(item, seen)
    elif isinstance(value, set):
        value.add("mutated")
    elif isinstance(value, bytearray):
        value.append(0)
    elif isinstance(value, BaseModel):
        mutate(vars(value), seen)
        if value.__pydantic_extra__ is not None:
            mutate(value.__pydantic_extra__, seen)
        value.__pydantic_fields_set__.add("mutated")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            mutate(getattr(value, field.name), seen)


def exact(message: Any) -> Any:
    """Returns all of a message that can be seen."""
    return vars(message), message.__pydantic_extra__, message.__pydantic_fields_set__


def test_a_copy_that_is_handed_out_again_is_shared_with_nobody(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {
        "messages": [
            HumanMessage("a", id="1", note="extra"),
            AIMessage("b", id="2", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}], response_metadata={"m": {}}),
            ToolMessage("t", id="3", tool_call_id="c", artifact={"k": [1]}),
        ]
        * 2
    }
    checkpoint["channel_versions"] = {"messages": saver.get_next_version(None)}
    place = config("t", checkpoint_ns="")
    saver.put(place, checkpoint, {}, checkpoint["channel_versions"])

    def read() -> list[Any]:
        found = saver.get_tuple(place)
        assert found is not None
        return cast("list[Any]", found.checkpoint["channel_values"]["messages"])

    expected = copy.deepcopy([exact(message) for message in read()])
    # What nobody holds is handed out again, and as it was.
    first = [id(message) for message in read()]
    assert [id(message) for message in read()] == first
    ways_to_hold: list[Callable[[Any], Any]] = [
        lambda message: message,
        vars,
        lambda message: message.additional_kwargs,
        lambda message: message.__pydantic_extra__,
        lambda message: message.__pydantic_fields_set__,
        lambda message: message.response_metadata,
        lambda message: message.tool_calls[0]["args"]["x"] if message.type == "ai" else message,
        lambda message: message.artifact if message.type == "tool" else message,
        weakref.ref,
    ]
    for hold in ways_to_hold:
        held = [hold(message) for message in read()]
        again = read()
        assert [exact(message) for message in again] == expected
        for part in held:
            mutate(part() if isinstance(part, weakref.ref) else part, set())
        assert [exact(message) for message in again] == expected
        del held, again
    # What was changed before it was given back is not handed out again.
    changes: list[Callable[[Any], Any]] = [
        lambda message: mutate(message, set()),
        lambda message: setattr(message, "content", "changed"),
        lambda message: setattr(message, "id", None),
        lambda message: message.additional_kwargs.update(seen=True),
        lambda message: setattr(message, "additional_kwargs", {}),
        lambda message: message.__pydantic_fields_set__.discard("id"),
        lambda message: vars(message).update(content=1),
        lambda message: vars(message).update({"name": vars(message).pop("name")}),
    ]
    for change in changes:
        for message in read():
            change(message)
        del message
        assert [exact(message) for message in read()] == expected
        assert [list(vars(message)) for message in read()] == [list(fields) for fields, *_ in expected]


def test_an_edit_of_a_copy_that_was_handed_out_is_stored(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    place = config("t", checkpoint_ns="")

    def put(messages: list[Any]) -> None:
        nonlocal place
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": saver.get_next_version(None)}
        place = saver.put(place, checkpoint, {}, checkpoint["channel_versions"])

    def read(saver: AnnalsSaver) -> list[Any]:
        found = saver.get_tuple(config("t"))
        assert found is not None
        return cast("list[Any]", found.checkpoint["channel_values"]["messages"])

    def message() -> AIMessage:
        call = {"name": "f", "args": {"x": [1, {}]}, "id": "c"}
        return AIMessage("b", id="2", note="extra", tool_calls=[call], response_metadata={"m": {}, "n": [1, "two"]})

    edits: list[Callable[[Any], Any]] = [
        lambda message: setattr(message, "content", "changed"),
        lambda message: vars(message).update(content=["parts"]),
        lambda message: setattr(message, "__dict__", {**vars(message), "name": "n"}),
        lambda message: vars(message).update({"name": vars(message).pop("name")}),
        lambda message: message.additional_kwargs.update(seen=True),
        lambda message: message.__pydantic_extra__.update(note="another"),
        lambda message: message.response_metadata["m"].update(seen=True),
        lambda message: message.response_metadata["n"].append(2),
        lambda message: message.response_metadata["n"].__setitem__(1, "too"),
        lambda message: message.response_metadata["n"].__setitem__(0, 1.0),
        lambda message: message.tool_calls[0]["args"]["x"][1].update(y=2),
        lambda message: message.tool_calls.append(message.tool_calls[0]),
        lambda message: message.tool_calls.clear(),
        lambda message: message.invalid_tool_calls.append({"name": "g", "args": "", "id": "d", "error": None}),
        lambda message: setattr(message, "invalid_tool_calls", [{"name": "g", "args": "", "id": "d", "error": None}]),
    ]
    put([message() for _ in edits])
    for at, edit in enumerate(edits):
        for _ in range(2):
            messages = read(saver)
        edit(messages[at])
        serializer = JsonPlusSerializer()
        wanted = serializer.loads_typed(serializer.dumps_typed(messages))
        put(messages)
        del messages
        for stored in (read(saver), read(AnnalsSaver(store))):
            assert serializer.dumps_typed(stored) == serializer.dumps_typed(wanted), at
            assert [exact(message) for message in stored] == [exact(message) for message in wanted], at
    # Edits that are taken back store nothing, and those of what comes last are not lost.
    messages = read(saver)
    messages[0].additional_kwargs["seen"] = True
    del messages[0].additional_kwargs["seen"]
    messages[-1].content = "last"
    put([*messages, HumanMessage("new", id="3")])
    assert texts({"messages": read(AnnalsSaver(store))})[-2:] == ["last", "new"]


@pytest.mark.parametrize("count", [1, 255, 256, 257, 700])
def test_a_long_list_is_stored_as_it_is_edited(store: annals.Store, count: int) -> None:
    saver = AnnalsSaver(store)
    place = config("t", checkpoint_ns="")
    messages: list[AnyMessage] = [HumanMessage(str(at), id=str(at)) for at in range(count)]
    edits: list[Callable[[list[Any]], Any]] = [
        lambda messages: messages.append(AIMessage("next", id="next")),
        lambda messages: messages.insert(0, AIMessage("first", id="first")),
        lambda messages: messages.pop(len(messages) // 2),
        lambda messages: messages.__setitem__(len(messages) // 3, AIMessage("third", id="third")),
        lambda messages: setattr(messages[-1], "content", "edited"),
        lambda messages: messages.extend(AIMessage("many", id=f"m{at}") for at in range(300)),
        lambda messages: messages.__delitem__(slice(10, 290)),
        lambda messages: messages.reverse(),
        lambda messages: messages.clear(),
        lambda messages: messages.append(AIMessage("again", id="again")),
    ]
    for edit in [lambda messages: None, *edits]:
        edit(messages)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": saver.get_next_version(None)}
        place = saver.put(place, checkpoint, {}, checkpoint["channel_versions"])
        expected = [exact_text(message) for message in messages]
        found = saver.get_tuple(place), AnnalsSaver(store).get_tuple(place)
        lists = [one.checkpoint["channel_values"]["messages"] for one in found if one is not None]
        assert [[exact_text(message) for message in one] for one in lists] == [expected, expected]
        messages = lists[0]


def exact_text(message: AnyMessage) -> tuple[str, str | None, Any]:
    return message.type, message.id, message.content


def test_the_checkpoints_of_a_listing_share_messages_that_nobody_changed(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    place = config("t", checkpoint_ns="")
    messages: list[Any] = []
    for turn in range(4):
        messages.append(AIMessage(str(turn), id=str(turn), response_metadata={"m": {}}))
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": saver.get_next_version(None)}
        place = saver.put(place, checkpoint, {}, checkpoint["channel_versions"])

    def lists() -> Iterator[list[Any]]:
        return (found.checkpoint["channel_values"]["messages"] for found in saver.list(config("t")))

    expected = [[exact(message) for message in one] for one in copy.deepcopy(list(lists()))]
    assert [len(one) for one in expected] == [4, 3, 2, 1]
    listed = list(lists())
    assert all(first is other for newer, older in zip(listed, listed[1:]) for first, other in zip(newer, older))
    # Another listing and a read have objects of their own.
    assert not {id(message) for message in listed[0]} & {id(message) for message in next(lists())}
    # A message that was changed before the next checkpoint is read is not in it.
    for at, one in enumerate(lists()):
        assert [exact(message) for message in one] == expected[at]
        mutate(one, set())
    assert [[exact(message) for message in one] for one in lists()] == expected


def test_what_is_handed_out_and_what_is_given_can_be_mutated(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    messages = [
        HumanMessage([{"type": "text", "text": "a"}], id="1"),
        AIMessage("b", id="2", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}], response_metadata={"m": {}}),
        ToolMessage("t", id="3", tool_call_id="c", artifact={"k": [1]}),
    ]
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {
        "messages": messages,
        "plain": [{"a": [1, {"b": None}]}] * 20,
        "set": {1, 2},
        "model": Model(x=1, inner={"a": [1]}),
        "bytes": bytearray(b"ab"),
        "deque": deque([[1]]),
        "data": Data({"a": [1]}),
    }
    checkpoint["channel_versions"] = {name: saver.get_next_version(None) for name in checkpoint["channel_values"]}
    versions = dict(checkpoint["channel_versions"])
    given_metadata: Any = {"source": "input", "step": 1, "more": {"a": [1]}}
    first = saver.put(config(checkpoint_ns=""), checkpoint, given_metadata, versions)
    saver.put_writes(first, [("messages", [messages[0]]), ("plain", [{"a": [1]}])], "task")
    saver.flush()
    witness = repr(AnnalsSaver(store).get_tuple(first))
    mutate([messages, checkpoint["channel_values"], checkpoint["versions_seen"], given_metadata], set())
    for _ in range(3):
        for reader in (saver, AnnalsSaver(store)):
            found = [reader.get_tuple(config()), *reader.list(config()), reader.get_tuple(first)]
            for one in found:
                assert one is not None
                asked = one._replace(config=first)
                assert repr(asked) == witness
                mutate([one.checkpoint, one.metadata, one.pending_writes, one.parent_config], set())


class Model(BaseModel):
    x: int
    inner: dict[str, Any]


@dataclasses.dataclass
class Data:
    inner: Any


class Pair(NamedTuple):
    a: Any
    b: Any


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


plain = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.binary()
)
frozen = (
    st.uuids()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.just(datetime.timezone.utc))
    | st.timedeltas()
    | st.ip_addresses()
    | st.sampled_from([Colour.RED, Colour.BLUE, Level.LOW, zoneinfo.ZoneInfo("UTC"), re.compile("a+", re.IGNORECASE)])
    | st.sampled_from([pathlib.Path("a/b"), ipaddress.ip_network("10.0.0.0/8"), datetime.timezone.utc])
    | st.frozensets(st.integers(min_value=0, max_value=9))
)
ids = st.text("abc", min_size=1, max_size=8)
content = st.text(max_size=20) | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5)}), max_size=2)
metadata = st.dictionaries(st.text(max_size=5), plain | st.lists(plain, max_size=2), max_size=2)
calls = st.lists(st.fixed_dictionaries({"name": ids, "args": metadata, "id": ids}), max_size=2)
message = (
    st.builds(HumanMessage, content=content, id=ids, additional_kwargs=metadata, name=st.none() | ids)
    | st.builds(AIMessage, content=content, id=ids, tool_calls=calls, response_metadata=metadata)
    | st.builds(ToolMessage, content=st.text(max_size=9), id=ids, tool_call_id=ids, artifact=plain)
    | st.builds(SystemMessage, content=content, id=st.none() | ids)
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(min_value=0, max_value=99), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers(min_value=0, max_value=99), max_size=3)
        | st.builds(deque, st.lists(inner, max_size=2))
        | st.builds(Data, inner=inner)
        | st.builds(Pair, a=inner, b=inner)
        | st.builds(Model, x=st.integers(min_value=0, max_value=9), inner=st.dictionaries(st.text(max_size=3), plain, max_size=2))
        | st.builds(Send, node=st.text(max_size=5), arg=inner)
        | st.builds(Interrupt, value=inner, id=ids)
        | st.lists(message, min_size=1, max_size=4)
    )


def is_same(found: Any, wanted: Any) -> bool:
    """Compares values with the classes of their parts, so that 1, 1.0 and true differ."""
    if type(found) is not type(wanted):
        return False
    if isinstance(found, dict):
        return list(found) == list(wanted) and all(is_same(found[key], wanted[key]) for key in found)
    if isinstance(found, (list, tuple, deque)):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if isinstance(found, BaseModel):
        return is_same(vars(found), vars(wanted))
    if dataclasses.is_dataclass(found):
        names = [field.name for field in dataclasses.fields(found)]
        return all(is_same(getattr(found, name), getattr(wanted, name)) for name in names)
    if isinstance(found, Send):
        return found.node == wanted.node and is_same(found.arg, wanted.arg)
    if isinstance(found, (set, frozenset)):
        return bool(found == wanted)
    return repr(found) == repr(wanted)


serializable = st.recursive(plain | frozen | message, nested, max_leaves=8)


@pytest.mark.filterwarnings("ignore")
def test_every_serializable_value_comes_back_equal(tmp_path: Path) -> None:
    store = annals.Store(tmp_path / "values.db", durable=False)
    serde = JsonPlusSerializer()
    warm, step = AnnalsSaver(store), [0]
    at: list[Any] = [config(checkpoint_ns="")]

    # The values of one example are those of the channels of a checkpoint, which follows the one before.
    @settings(
        max_examples=VALUES // 50,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(values=st.lists(serializable, min_size=50, max_size=50))
    def check(values: list[Any]) -> None:
        step[0] += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {f"c{number}": value for number, value in enumerate(values)}
        version = f"{step[0]:032}.0"
        checkpoint["channel_versions"] = {name: version for name in checkpoint["channel_values"]}
        wanted = [serde.loads_typed(serde.dumps_typed(value)) for value in values]
        at[0] = warm.put(at[0], checkpoint, {"source": "loop", "step": step[0]}, checkpoint["channel_versions"])
        warm.put_writes(at[0], list(checkpoint["channel_values"].items()), "task")
        warm.flush()
        for reader in (warm, AnnalsSaver(store)):
            found = reader.get_tuple(config())
            assert found is not None and found.pending_writes is not None
            of_channels = [found.checkpoint["channel_values"][f"c{number}"] for number in range(len(values))]
            of_writes = {channel: value for _, channel, value in found.pending_writes}
            for number, value in enumerate(wanted):
                assert is_same(of_channels[number], value) and is_same(of_writes[f"c{number}"], value)

    check()
    assert step[0] == VALUES // 50


def test_one_saver_serves_threads_and_loops(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    graph = compiled(saver)

    def sync_turns(name: str) -> None:
        for number in range(5):
            graph.invoke({"messages": [HumanMessage(str(number))], "count": 0}, config(name))

    async def turns(name: str) -> None:
        for number in range(5):
            await graph.ainvoke({"messages": [HumanMessage(str(number))], "count": 0}, config(name))

    async def loop(first: int) -> None:
        await asyncio.gather(*(turns(f"async-{first + number}") for number in range(3)))

    workers = [threading.Thread(target=sync_turns, args=(f"sync-{number}",)) for number in range(3)]
    workers += [threading.Thread(target=lambda first=first: asyncio.run(loop(first))) for first in (0, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    names = [f"sync-{number}" for number in range(3)] + [f"async-{number}" for number in range(6)]
    for name in names:
        values = graph.get_state(config(name)).values
        assert values["count"] == 5 and len(values["messages"]) == 10
        assert texts(values)[::2] == [str(number) for number in range(5)]


def test_a_listing_is_read_while_others_put(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    graph = compiled(saver)
    for number in range(4):
        graph.invoke({"messages": [HumanMessage(str(number))], "count": 0}, config())
    seen = []
    for found in saver.list(config()):
        seen.append(found.config["configurable"]["checkpoint_id"])
        graph.invoke({"messages": [HumanMessage("meanwhile")], "count": 0}, config("bob"))
        assert saver.get_tuple(config()) is not None
    assert len(seen) == 12 and seen == sorted(seen, reverse=True)

    async def read() -> int:
        count = 0
        async for _ in saver.alist(config(), limit=3):
            await graph.ainvoke({"messages": [HumanMessage("meanwhile")], "count": 0}, config("bob"))
            count += 1
        return count

    assert asyncio.run(read()) == 3


def test_two_runs_on_one_thread_are_a_conflict_or_branches(store: annals.Store) -> None:
    for name, on_conflict in (("error", "error"), ("fork", "fork")):
        one, two = (AnnalsSaver(store, on_conflict=on_conflict) for _ in range(2))  # type: ignore[arg-type]
        begun, may_go_on = threading.Event(), threading.Event()

        def slow(state: State) -> dict[str, Any]:
            if state["messages"][-1].content == "slow":
                begun.set()
                may_go_on.wait()
            return {"messages": [AIMessage("answer")], "count": 1}

        builder = StateGraph(State)
        builder.add_node("model", slow)
        builder.add_edge(START, "model")
        first, second = (builder.compile(checkpointer=saver) for saver in (one, two))
        first.invoke({"messages": [HumanMessage("begin")], "count": 0}, config(name))
        result: list[Any] = []

        def run() -> None:
            try:
                input = {"messages": [HumanMessage("slow")], "count": 0}
                result.append(first.invoke(input, config(name), durability="sync"))
            except annals.ConflictError as error:
                result.append(error)

        runner = threading.Thread(target=run, daemon=True)
        runner.start()
        begun.wait()
        second.invoke({"messages": [HumanMessage("fast")], "count": 0}, config(name))
        may_go_on.set()
        runner.join()
        stored = {
            message.content
            for found in two.list(config(name))
            for message in found.checkpoint["channel_values"].get("messages", [])
        }
        assert {"begin", "slow", "fast"} <= stored, "no input is lost"
        if on_conflict == "error":
            assert isinstance(result[0], annals.ConflictError) and result[0].code == "CONFLICT"
        else:
            assert texts(result[0])[-2:] == ["slow", "answer"]


def test_going_back_in_time_is_no_conflict(store: annals.Store) -> None:
    graph = compiled(AnnalsSaver(store))
    for number in range(3):
        graph.invoke({"messages": [HumanMessage(str(number))], "count": 0}, config())
    before = [state for state in graph.get_state_history(config()) if not state.next][1]
    replayed = graph.invoke({"messages": [HumanMessage("again")], "count": 0}, before.config)
    assert texts(replayed) == ["0", "answer 1", "1", "answer 3", "again", "answer 5"]
    graph.update_state(before.config, {"messages": [HumanMessage("updated")], "count": 0})
    assert texts(graph.get_state(config()).values)[-1] == "updated"


def test_threads_are_copied_pruned_and_deleted(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    graph = compiled(saver)
    for number in range(3):
        graph.invoke({"messages": [HumanMessage(str(number))], "count": 0}, config())
    saver.copy_thread("alice", "bob")
    ids = [found.config["configurable"]["checkpoint_id"] for found in saver.list(config())]
    assert [found.config["configurable"]["checkpoint_id"] for found in saver.list(config("bob"))] == ids
    saver.prune(["alice"])
    assert len(list(saver.list(config()))) == 1 and len(list(saver.list(config("bob")))) == 9
    graph.invoke({"messages": [HumanMessage("more")], "count": 0}, config())
    assert len(graph.get_state(config()).values["messages"]) == 8
    saver.prune(["alice"], strategy="delete")
    saver.delete_thread("bob")
    assert list(saver.list(None)) == [] and graph.get_state(config()).values == {}
    with pytest.raises(annals.InvalidError, match="strategy"):
        saver.prune(["alice"], strategy="some")


class Cipher:
    """Not a cipher, but a place where one is called."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(byte ^ 0x5A for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in ciphertext)


def test_a_serializer_of_the_caller_is_used(tmp_path: Path) -> None:
    path = tmp_path / "secret.db"
    with AnnalsSaver(path, serde=EncryptedSerializer(Cipher())) as saver:
        graph = compiled(saver)
        for number in range(2):
            graph.invoke({"messages": [HumanMessage(f"a secret {number}")], "count": 0}, config())
        assert texts(graph.get_state(config()).values)[::2] == ["a secret 0", "a secret 1"]
    assert b"a secret" not in path.read_bytes()
    with AnnalsSaver(path, serde=EncryptedSerializer(Cipher())) as saver:
        assert texts(compiled(saver).get_state(config()).values)[::2] == ["a secret 0", "a secret 1"]
    with AnnalsSaver(path) as saver, pytest.raises(NotImplementedError):
        compiled(saver).get_state(config())


def test_an_allowlist_makes_a_saver_of_its_own(store: annals.Store) -> None:
    strict = AnnalsSaver(store, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"data": Data(1)}
    checkpoint["channel_versions"] = {"data": strict.get_next_version(None)}
    stored = strict.put(config(checkpoint_ns=""), checkpoint, {}, checkpoint["channel_versions"])
    allowed = strict.with_allowlist([(Data.__module__, "Data")])
    assert allowed is not strict and strict.with_allowlist([]) is strict
    for _ in range(2):
        for reader, wanted in ((strict, {"inner": 1}), (allowed, Data(1))):
            for place in (config(), stored):
                found = reader.get_tuple(place)
                assert found is not None and found.checkpoint["channel_values"] == {"data": wanted}


def test_objects_are_shown_by_class_and_fields(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {
        "at": datetime.date(2026, 1, 2),
        "key": uuid.UUID(int=7),
        "message": HumanMessage("hello Bern", id="1"),
        "tags": {"a"},
    }
    checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], saver.get_next_version(None))
    saver.put(config("t", checkpoint_ns=""), checkpoint, {}, checkpoint["channel_versions"])
    head = store.thread("t").at("@")
    assert repr(head["at"]) == 'Extension({"$date":"2026-01-02"})'
    assert repr(head["key"]) == 'Extension({"$uuid":"00000000-0000-0000-0000-000000000007"})'
    assert repr(head["tags"]) == 'Extension({"$set":["a"]})'
    assert '"content":"hello Bern"' in repr(head["message"])
    assert [hit.marked("<", ">").splitlines()[0] for hit in store.search("bern")] == ["hello <Bern>"]
    assert repr(annals.Extension(5, b"\xc1")) == "Extension(5, 1 bytes)"


def test_bad_input_says_what_is_wrong(store: annals.Store) -> None:
    saver = AnnalsSaver(store)
    checkpoint: Any = empty_checkpoint()
    with pytest.raises(annals.InvalidError, match="channel_values"):
        saver.put(config(), {name: checkpoint[name] for name in checkpoint if name != "channel_values"}, {}, {})  # type: ignore
    with pytest.raises(annals.InvalidError, match="version is a text or a number"):
        saver.put(config(), {**checkpoint, "channel_versions": {"a": []}}, {}, {})
    with pytest.raises(annals.InvalidError, match="on_conflict"):
        AnnalsSaver(store, on_conflict="maybe")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="serializable"):
        saver.put_writes(config(checkpoint_id=checkpoint["id"]), [("a", object())], "task")
    with pytest.raises(annals.InvalidError):
        saver.put_writes(config(), [("a", 1)], "task")
    assert list(saver.list(None)) == []


def test_a_killed_process_goes_on_from_the_last_acknowledged_turn(address: str) -> None:
    kill = subprocess.run(
        [sys.executable, str(HERE / "langgraph_kills.py"), "--kills", KILLS, "--store", address],
        capture_output=True,
        text=True,
        check=False,
    )
    assert kill.returncode == 0, kill.stdout + kill.stderr
    assert f"{KILLS} kills" in kill.stdout


def test_eight_processes_lose_no_input_silently(address: str) -> None:
    AnnalsSaver(address).close()
    command = [sys.executable, str(HERE / "langgraph_turns.py"), address, "25"]
    workers = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(8)
    ]
    outcomes = [line.split() for worker in workers for line in worker.communicate()[0].splitlines()]
    assert all(worker.returncode == 0 for worker in workers) and len(outcomes) == 200
    with AnnalsSaver(address) as saver:
        final = set(texts(compiled(saver).get_state(config("shared")).values))
        stored = {text for found in saver.list(config("shared")) for text in texts({"messages": [], **found.checkpoint["channel_values"]})}
        assert saver.store.check().is_sound
    told = {outcome: {text for said, text in outcomes if said == outcome} for outcome in ("stored", "conflict")}
    assert told["stored"], "one writer at least is always faster"
    assert told["stored"] <= final, "a turn that was acknowledged is in the thread"
    assert len(told["stored"]) + len(told["conflict"]) == 200
    assert stored <= told["stored"] | told["conflict"] | {text for text in stored if text.startswith("answer")}
