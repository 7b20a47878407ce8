"""Stores, threads and snapshots."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import annals

KEY = bytes(range(32))


def texts(snapshot: annals.Snapshot | None) -> list[str]:
    assert snapshot is not None
    return [message["content"] for message in snapshot.items()]


def chat(store: annals.Store, name: str = "alice") -> annals.Thread:
    thread = store.thread(name)
    thread.append_messages([("human", "A hotel in Bern?"), {"role": "assistant", "content": "The Gasthof Post."}])
    thread.update(set={"title": "Bern"}, append={"visited": ["Bern"]}, put={"files": {"a": 1}}, text={"log": "one "})
    thread.append_messages(["Thanks"], usage={"input_tokens": 5, "output_tokens": 2, "cost_usd": 0.5})
    return thread


def test_a_thread_is_written_and_read(store: annals.Store) -> None:
    thread = store.thread("alice")
    assert not thread.exists() and thread.head() is None
    thread = chat(store)
    head = thread.head()
    assert head is not None and head.thread == "alice" and head.step == 2 and head.source == "update"
    assert texts(head) == ["A hotel in Bern?", "The Gasthof Post.", "Thanks"]
    values = head.values()
    assert (values["title"], values["visited"], values["files"], values["log"]) == ("Bern", ["Bern"], {"a": 1}, "one ")
    assert head["title"] == "Bern" and head.get("none") is None and head.get("none", 3) == 3
    with pytest.raises(KeyError):
        head["none"]
    assert head.entry("files", "a") == 1 and head.entry("files", "b") is None and head.length("messages") == 3
    assert [m["content"] for m in head.items(last=1)] == ["Thanks"]
    assert [m["content"] for m in head.items(start=1, stop=2)] == ["The Gasthof Post."]
    assert [m["content"] for m in head.find_messages("Gasthof", role="ai")] == ["The Gasthof Post."]
    assert head.parent() == thread.at("~1") and hash(head) == hash(store.at("alice"))
    assert timedelta(0) <= datetime.now(timezone.utc) - head.created_at < timedelta(days=1)
    info = thread.info()
    assert (info.messages, info.input_tokens, info.cost_usd, info.status) == (3, 5, 0.5, "done")


def test_a_message_is_what_langchain_openai_or_a_person_writes(store: annals.Store) -> None:
    thread = store.thread("alice")
    thread.append_messages([{"type": "ai", "content": "x", "id": "1", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}])
    thread.append_messages([{"type": "ai", "content": "y", "id": "1"}, {"type": "tool", "content": "z", "tool_call_id": "c"}])
    head = thread.head()
    assert head is not None and [m["type"] for m in head.items()] == ["ai", "tool"] and texts(head) == ["y", "z"]
    thread.append_messages([{"type": "remove", "id": "1"}])
    assert texts(thread.head()) == ["z"]
    for bad in ("text", {"role": "user"}, [{"content": 3, "role": "user"}], [{"nothing": 1}], [object()]):
        with pytest.raises((annals.InvalidError, TypeError)):
            thread.append_messages(bad)  # type: ignore[arg-type]
    assert texts(thread.head()) == ["z"]


def test_messages_of_langchain_are_objects_too(store: annals.Store) -> None:
    messages = pytest.importorskip("langchain_core.messages", reason="LangChain is not installed")
    call = {"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}
    given_messages = [
        messages.SystemMessage("s", id="1"),
        messages.AIMessage("a", id="2", tool_calls=[call], response_metadata={"m": 1}),
        messages.ToolMessage("t", id="3", tool_call_id="c", artifact={"k": b"x"}),
    ]
    thread = store.thread("alice")
    thread.append_messages(given_messages)
    head = thread.head()
    assert head is not None and head.items() == [message.model_dump() for message in given_messages]
    thread.append_messages([messages.RemoveMessage("2")])
    assert texts(thread.head()) == ["s", "t"]


def test_a_write_expects_a_head(store: annals.Store) -> None:
    thread = store.thread("seat")
    first = thread.set("taken_by", "ann", expect=None)
    seen = thread.head()
    thread.set("taken_by", "bob", expect=seen)
    with pytest.raises(annals.ConflictError) as error:
        thread.set("taken_by", "eve", expect=first)
    assert error.value.code == "CONFLICT" and error.value.is_retryable
    with pytest.raises(annals.ConflictError):
        thread.set("taken_by", "eve", expect=None)
    with pytest.raises(annals.InvalidError):
        thread.set("taken_by", "eve", expect=3)  # type: ignore[arg-type]
    late = thread.append("list", [1], expect=first, on_conflict="branch")
    assert thread.at(late)["taken_by"] == "ann" and thread.at("@")["taken_by"] == "bob"
    assert sorted(name or "" for name, _, _ in thread.branches()) == ["", "conflict-1"]


def test_history_forks_undo_and_branches(store: annals.Store) -> None:
    thread = chat(store)
    steps = [snapshot.step for snapshot in thread.history()]
    history = thread.history(limit=2)
    assert steps == [2, 1, 0] and [s.step for s in history] == [s.step for s in history] == [2, 1]
    first = thread.at("~2")
    assert [s.step for s in thread.history(before=thread.at("~1").id)] == [0]
    assert [s.step for s in thread.history(step=1, source="update")] == [1]
    assert list(thread.history(metadata={"none": 1})) == []

    fork = first.fork("alice-2")
    fork.append_messages(["Another"])
    assert texts(fork.head())[-1] == "Another" and texts(thread.head())[-1] == "Thanks"
    with pytest.raises(annals.ConflictError):
        first.fork("alice-2")
    copied = thread.copy("alice-3")
    assert [s.id for s in copied.history()] == [s.id for s in thread.history()]

    undone = thread.by("Zoë").undo()
    assert undone is not None and undone.name == "update" and thread.at("@").step == 1
    assert next(thread.operations()).actor == "Zoë"
    assert thread.redo() is not None and thread.redo() is None
    thread.rewind(first)
    assert texts(thread.head()) == ["A hotel in Bern?", "The Gasthof Post."]
    copied.delete()
    assert {info.id for info in store.threads()} == {"alice", "alice-2"}


def test_a_compaction_folds_messages_for_a_model(store: annals.Store) -> None:
    thread = store.thread("alice")
    assert thread.append_messages([("human", f"message {n}") for n in range(10)])
    summarised = thread.head()
    assert summarised is not None and summarised.model_view() == summarised.items()
    thread.append_messages(["one more"])
    usage = {"input_tokens": 90, "output_tokens": 9}
    point = thread.compact([("system", "a summary")], keep_first=1, keep_last=2, of=summarised, usage=usage)
    head = thread.head()
    assert head is not None and head.id == point and head.length("messages") == 11
    view = [message["content"] for message in head.model_view()]
    assert view == ["message 0", "a summary", "message 8", "message 9", "one more"]
    assert head.model_view()[1]["type"] == "system" and thread.info().input_tokens == 90
    assert len(summarised.fork("alice-2").at("@").model_view()) == 10

    # The summary of a state from before the last compaction would lose that one.
    with pytest.raises(annals.ConflictError):
        thread.compact([("system", "late")], of=summarised)
    for refused in (
        lambda: thread.compact([("system", "s")], keep_first=6, keep_last=6),
        lambda: thread.compact([("system", "s")], channel="none"),
        lambda: thread.compact("a text is no list of messages"),
        lambda: store.thread("alice-2").compact([("system", "s")], of=head),
    ):
        with pytest.raises(annals.InvalidError):
            refused()
    assert thread.undo() is not None and len(thread.at("@").model_view()) == 11
    thread.compact([], keep_last=1)
    assert [message["content"] for message in thread.at("@").model_view()] == ["one more"]


def test_differences_blame_and_texts_over_time(store: annals.Store) -> None:
    thread = chat(store)
    before, head = thread.at("~2"), thread.at("@")
    diff = before.diff(head)
    assert diff and not head.diff(head) and diff.channels["title"] == {"kind": "added", "after": "Bern"}
    assert diff.channels["messages"]["items"][0]["after"]["content"] == "Thanks"
    assert "Thanks" in str(diff) and str(store.diff("alice~2..alice")) == str(diff)
    blame = head.blame("title")
    assert blame is not None and blame.step == 1 and blame == head.blame("title") and head.blame("none") is None
    assert getattr(head.blame("messages", position=2), "step") == 2
    with pytest.raises(annals.InvalidError):
        head.blame("messages", position=2, item="x")
    thread.set("title", "Basel")
    head = thread.at("@")
    assert [version.value for version in head.evolution("title")] == ["Basel", "Bern"]
    assert [change.appears for change in head.pickaxe("Gasthof")] == [True]


def test_threads_are_listed_by_their_facts(store: annals.Store) -> None:
    for number in range(450):
        store.thread(f"t{number:03}").set("n", number)
    assert len({info.id for info in store.threads()}) == 450, "several pages"
    thread = store.thread("t007")
    thread.set_facts(title="Trip to Bern", project="travel", add_labels=["b", "a"], pinned=True)
    thread.set_facts(remove_labels=["b"])
    found = list(store.threads(title="bern", project="travel", label="a", pinned=True, status="done"))
    assert [(info.id, info.title, info.labels, info.is_pinned) for info in found] == [("t007", "Trip to Bern", ["a"], True)]
    thread.set_facts(archived=True, title="")
    assert "t007" not in {info.id for info in store.threads()}
    assert [info.title for info in store.threads(archived=True)] == [None]
    assert next(store.threads(by_id=True)).id == "t000"
    with pytest.raises(annals.InvalidError, match="status"):
        store.threads(status="asleep")


def test_a_search_reads_page_by_page(store: annals.Store) -> None:
    thread = store.thread("alice")
    for number in range(120):
        thread.append_messages([f"message {number} about Bern"])
    for _ in range(2):
        assert len(list(store.search("bern"))) == 120 and len(list(store.search("bern", limit=3))) == 3
        hit = next(store.search("bern", role="human", on_head=True))
        assert hit.marked("<", ">") == "message 119 about <Bern>" and hit.snapshot() == thread.at("@")
        store.enable_search()


def test_messages_go_out_and_come_in(store: annals.Store, tmp_path: Path) -> None:
    head = chat(store).at("@")
    assert (head.export("openai", lines=True) or "").splitlines()[1] == '{"role":"assistant","content":"The Gasthof Post."}'
    assert "## ai" in (head.export("markdown") or "")
    path = tmp_path / "chat.json"
    assert head.export(path=path) is None
    with pytest.raises(FileExistsError):
        head.export(path=path)
    for name, source in [("path", path), ("text", path.read_text()), ("bytes", path.read_bytes())]:
        other = store.thread(name)
        assert other.import_messages(source) == 3 and other.at("@").items() == head.items()
        with pytest.raises(annals.ConflictError):
            other.import_messages(source)
    with pytest.raises(annals.InvalidError, match="format"):
        head.export("word")
    with pytest.raises(annals.NotFoundError):
        head.export(channel="none")


def test_sql_reads_and_does_not_write(file_store: annals.Store) -> None:
    chat(file_store)
    table = file_store.sql("select thread, count(*) as n from v_messages where thread = ? group by 1", ["alice"])
    assert table.columns == ["thread", "n"] and table.rows == [("alice", 3)] and len(table) == 1 and list(table) == table.rows
    for bad in ("delete from checkpoint", "", "select load_extension('x')", "selec 1", "attach 'x' as y"):
        with pytest.raises(annals.InvalidError):
            file_store.sql(bad)
    with pytest.raises(annals.InvalidError):
        annals.Store.memory().sql("select 1")


def test_a_file_is_checked_backed_up_and_encrypted(tmp_path: Path) -> None:
    path = tmp_path / "secret.db"
    with annals.Store(path, key=KEY) as store:
        chat(store)
        report = store.check()
        assert report.is_sound and report.checkpoints == 3
        store.thread("alice").set("title", "Basel")
        assert store.check(since=report.up_to).checkpoints == 1
        store.backup(tmp_path / "copy.db")
        assert store.stats()["file_bytes"] > 0 and store.path == path
    assert b"Gasthof" not in path.read_bytes()
    with annals.Store(tmp_path / "copy.db", key=KEY, read_only=True) as copied:
        assert texts(copied.thread("alice").head())[1] == "The Gasthof Post."
        with pytest.raises(annals.StorageError) as error:
            copied.thread("alice").set("x", 1)
        assert error.value.code == "READ_ONLY"
    with pytest.raises(annals.InvalidError) as refused:
        annals.Store(path)
    assert refused.value.code == "KEY_REQUIRED"
    with pytest.raises(annals.InvalidError, match="32"):
        annals.Store(path, key=b"short")
    with pytest.raises(annals.Error):
        annals.Store(tmp_path / "none.db", create=False)
    (tmp_path / "other.db").write_bytes(b"not a store" * 1000)
    with pytest.raises(annals.CorruptError):
        annals.Store(tmp_path / "other.db")


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = annals.Store(tmp_path / "a.db")
    thread = store.thread("alice")
    store.close()
    store.close()
    with pytest.raises(annals.InvalidError) as error:
        store.thread("alice")
    assert error.value.code == "STORE_CLOSED"
    thread.set("x", 1)


def test_errors_are_a_hierarchy_and_survive_pickle(store: annals.Store) -> None:
    with pytest.raises(LookupError) as error:
        store.at("none")
    caught = error.value
    assert isinstance(caught, annals.NotFoundError) and caught.code == "THREAD_NOT_FOUND" and not caught.is_retryable
    again = pickle.loads(pickle.dumps(caught))
    assert type(again) is type(caught) and again.args == caught.args and again.code == caught.code
    with pytest.raises(annals.InvalidError, match=r'value\["a"\]\[1\]: an object of the class Path is not') as refused:
        store.thread("t").set("x", {"a": [1, PathValue]})
    assert isinstance(refused.value, TypeError) and isinstance(refused.value, ValueError)
    with pytest.raises(OverflowError, match="4300 digits"):
        store.thread("t").set("x", 10**4400)
    with pytest.raises(annals.InvalidError, match="surrogate"):
        store.thread("t").set("x", "\ud800")
    nested: list[Any] = []
    for _ in range(200):
        nested = [nested]
    with pytest.raises(annals.InvalidError, match="deeper"):
        store.thread("t").set("x", nested)
    assert not store.thread("t").exists()


class Path_:
    """An object that is not a value."""


Path_.__name__ = "Path"
PathValue = Path_()


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**60), max_value=10**60)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=plain)
def test_a_value_comes_back_equal(store: annals.Store, value: Any) -> None:
    thread = store.thread("values")
    witness = copy.deepcopy(value)
    thread.update(set={"value": value}, append={"list": [value]})
    head = thread.at("@")
    for found in (head["value"], head.items("list", last=1)[0]):
        assert found == witness and repr(found) == repr(witness), "the types are those that were stored"


def test_odd_values_keep_their_kind(store: annals.Store) -> None:
    thread = store.thread("values")
    for value in (annals.Extension(3, b"ab"), bytearray(b"x"), (1, (2,)), math.inf, -0.0, 2**63, -(2**63) - 1, True):
        thread.set("value", value)
        found = thread.at("@")["value"]
        wanted = bytes(value) if isinstance(value, bytearray) else [1, [2]] if isinstance(value, tuple) else value
        assert found == wanted and str(found) == str(wanted)
    thread.set("value", math.nan)
    assert math.isnan(thread.at("@")["value"])


def test_what_is_handed_out_is_a_copy(store: annals.Store) -> None:
    thread = chat(store)
    head = thread.at("@")
    values = head.values()
    values["messages"].clear()
    values["files"]["b"] = 1
    head.items()[0]["content"] = "edited"
    head.metadata["x"] = 1
    assert texts(thread.at("@")) == texts(head) == ["A hotel in Bern?", "The Gasthof Post.", "Thanks"]
    assert head["files"] == {"a": 1} and "x" not in head.metadata


def test_threads_of_the_process_write_at_once(store: annals.Store) -> None:
    def write(number: int) -> None:
        for step in range(20):
            store.thread("shared").append("items", [[number, step]])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    items = store.at("shared").items("items")
    assert len(items) == 80
    assert all([step for n, step in items if n == number] == list(range(20)) for number in range(4))


def test_one_iterator_is_shared_by_threads(store: annals.Store) -> None:
    thread = store.thread("alice")
    for number in range(60):
        thread.set("n", number)
    iterator, found, lock = iter(thread.history()), [], threading.Lock()

    def read() -> None:
        for snapshot in iterator:
            with lock:
                found.append(snapshot.step)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert sorted(found) == list(range(60))


def test_the_memory_has_lifetimes_filters_and_namespaces() -> None:
    clock = annals.ManualClock(datetime(2026, 1, 1, tzinfo=timezone.utc))
    kv = annals.Store.memory(clock=clock).kv(default_ttl=60)
    kv.put(("users", "ann"), "age", {"n": 41}, ttl=None)
    kv.put(["users", "bob"], "age", {"n": 17})
    assert [item.namespace for item in kv.search(["users"], filter={"n": {"$gte": 18}})] == [("users", "ann")]
    assert kv.list_namespaces(prefixes=[["users"]], suffixes=[["*"]]) == [["users", "ann"], ["users", "bob"]]
    clock.advance(61)
    assert kv.get(("users", "bob"), "age") is None and kv.sweep() == 1
    item = kv.get(("users", "ann"), "age")
    assert item is not None and item.value == {"n": 41} and item.expires_at is None and item.created_at < clock.now()
    kv.write_all([(("a",), "k", {"x": 1}, ..., None), (("users", "ann"), "age", None, None, None)])
    assert kv.get(("users", "ann"), "age") is None
    with pytest.raises(annals.InvalidError):
        kv.put((), "k", {})
    with pytest.raises(TypeError):
        kv.put("users", "k", {})


def test_an_embedding_that_fails_raises_its_own_error() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        raise ZeroDivisionError(texts[0])

    kv = annals.Store.memory().kv(index={"dims": 2, "embed": embed})
    with pytest.raises(ZeroDivisionError):
        kv.put(("a",), "k", {"text": "x"})
    kv.put(("a",), "k", {"text": "x"}, index=False)
    with pytest.raises(ZeroDivisionError):
        kv.search(("a",), query="x")


def test_notebooks_show_small_escaped_tables(file_store: annals.Store) -> None:
    thread = file_store.thread("<b>")
    assert "no checkpoints" in thread._repr_html_()
    for number in range(30):
        thread.set("<i>", "<script>" + "x" * 500 + str(number))
    shown = [
        thread._repr_html_(),
        thread.history()._repr_html_(),
        thread.at("@")._repr_html_(),
        thread.at("~1").diff(thread.at("@"))._repr_html_(),
        file_store.sql("select '<u>' as a")._repr_html_(),
    ]
    for html in shown:
        assert len(html) < 6000 and not any(tag in html for tag in ("<b>", "<i>", "<script>", "<u>")), html
    assert shown[1].count("<tr>") == 21


def test_data_frames_are_made_if_pandas_is_there(file_store: annals.Store) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    thread = chat(file_store)
    assert list(thread.to_pandas()["step"]) == list(thread.history().to_pandas()["step"]) == [2, 1, 0]
    assert list(thread.at("@").to_pandas()["type"]) == ["human", "ai", "human"]
    assert file_store.sql("select 1 as a").to_pandas()["a"].sum() == 1
