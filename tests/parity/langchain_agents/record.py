#!/usr/bin/env python3
"""Records what LangGraph's tool node and LangChain's agents do in the scenarios of vectors.json.

usage: record.py [--check]        (needs langgraph==1.2.24 and langchain; writes or compares the member `expect` of each)

Sentences that the libraries write are replaced by tags such as `<unknown gone of weather>`: the data in them counts,
the words do not.
"""
import json, logging, re, sys, warnings
from pathlib import Path
from typing import Annotated, Optional

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware, HumanInTheLoopMiddleware, ModelCallLimitMiddleware, ModelFallbackMiddleware,
    ToolCallLimitMiddleware)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.prebuilt.tool_node import ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import ConfigDict, Field, create_model
from typing_extensions import TypedDict

HERE = Path(__file__).resolve().parent
TYPES = {"str": str, "int": int, "list": list[str]}
ERRORS = {"ValueError": ValueError, "KeyError": KeyError, "RuntimeError": RuntimeError}


class Unavailable(Exception):
    """The failure of a scripted model."""


# ------------------------------------------------------------------ messages

def message(spec):
    kind, content, *more = spec
    more = more[0] if more else {}
    if kind == "ai":
        calls = [{"name": n, "args": a, "id": i, "type": "tool_call"} for n, a, i in more.get("calls", [])]
        return AIMessage(content=content, tool_calls=calls, id=more.get("id"))
    if kind == "tool":
        return ToolMessage(content=content, tool_call_id=more["of"], name=more.get("name"),
                           status=more.get("status", "success"), artifact=more.get("artifact"))
    if kind == "remove_all":
        return RemoveMessage(id=REMOVE_ALL_MESSAGES)
    return {"human": HumanMessage, "system": SystemMessage}[kind](content=content, id=more.get("id"))


TAGS = [
    (r"Error: (\S+) is not a valid tool, try one of \[(.*)\]\.", lambda m: f"<unknown {m[1]} of {m[2]}>"),
    (r"Error invoking tool '(\w+)' with kwargs .*? with error:\n (.*)\n Please fix the error and try again\.",
     lambda m: "<invalid " + m[1] + ": " + ", ".join(line.split(":")[0] for line in m[2].split("\n")) + ">"),
    (r"Error: ToolInvocationError.*", lambda m: "<error invalid>"),
    (r"Error: Failed to parse structured output.*", lambda m: "<bad output>"),
    (r"Error: Model incorrectly returned multiple structured responses.*", lambda m: "<many outputs>"),
    (r"Error: (.*)\n Please fix your mistakes\.", lambda m: f"<error {m[1]}>"),
    (r"Sorry, need more steps.*", lambda m: "<out of steps>"),
    (r"Model call limits exceeded.*", lambda m: "<model limit>"),
    (r"Tool call limit exceeded\..*", lambda m: "<tool limit>"),
    (r"User rejected the tool call for `\w+` with reason: (.*)", lambda m: f"<rejected: {m[1]}>"),
    (r"User rejected the tool call for `\w+` with id .*", lambda m: "<rejected>"),
    (r"Returning structured response: .*", lambda m: "<output>"),
    (r".* Executed instead: (\w+) with arguments .*?\.\n\nTool response:\n(.*)", lambda m: f"<edited {m[1]}>{plain(m[2])}"),
]


def plain(content):
    if isinstance(content, str):
        for pattern, tag in TAGS:
            found = re.fullmatch(pattern, content, re.S)
            if found:
                return tag(found)
    return content


def seen(one):
    more = {}
    if isinstance(one, AIMessage) and one.tool_calls:
        more["calls"] = [[c["name"], c["args"], c["id"]] for c in one.tool_calls]
    if isinstance(one, ToolMessage):
        more = {"of": one.tool_call_id, "name": one.name, "status": one.status}
        if one.artifact is not None:
            more["artifact"] = one.artifact
    return [one.type, plain(one.content)] + ([more] if more else [])


# --------------------------------------------------------------------- tools

def result(do, args, runtime):
    """What a scripted tool does; `runtime` has the state, the store, the context and the id of the call."""
    own = runtime.tool_call_id
    if "raise" in do:
        raise ERRORS[do["raise"][0]](do["raise"][1])
    if "interrupt" in do:
        return f"got {interrupt(do['interrupt'])}"
    if "ask_twice" in do:
        return f"got {interrupt(do['ask_twice'][0])} and {interrupt(do['ask_twice'][1])}"
    if "state" in do:
        value = runtime.state[do["state"]]
        return len(value) if isinstance(value, list) else value
    if "store" in do:
        item = runtime.store.get(("notes",), do["store"])
        return item.value["text"] if item else "nothing"
    if "context" in do:
        return runtime.context[do["context"]]
    if "reply" in do:
        replies = [reply(one, args, own) for one in do["reply"]]
        return replies[0] if len(replies) == 1 and not do.get("list") else replies
    if "echo" in do:
        return do["echo"].format(**args)
    return do["return"]


def filled(value, args, own):
    if isinstance(value, str):
        return own if value == "$id" else value.format(**args)
    if isinstance(value, list):
        return [filled(one, args, own) for one in value]
    if isinstance(value, dict):
        return {name: filled(one, args, own) for name, one in value.items()}
    return value


def reply(spec, args, own):
    spec = filled(spec, args, own)
    if "message" in spec:
        return message(spec["message"])
    command = spec["command"]
    update = dict(command.get("set", {}))
    if "messages" in command:
        update["messages"] = [message(one) for one in command["messages"]]
    goto = [Send(*one) if isinstance(one, list) else one for one in command.get("goto", [])]
    graph = Command.PARENT if command.get("parent") else None
    return Command(update=update or None, goto=goto, graph=graph)


def tool(spec):
    fields = {}
    for name, kind in spec.get("args", {}).items():
        optional = kind.endswith("?")
        of = TYPES[kind.rstrip("?")]
        fields[name] = (Optional[of], None) if optional else (of, ...)
    schema = create_model(
        spec["name"], __config__=ConfigDict(arbitrary_types_allowed=True), runtime=(ToolRuntime, ...), **fields)
    do = spec["do"]

    def run(runtime: ToolRuntime, **args):
        out = result(do, {k: v for k, v in args.items() if v is not None}, runtime)
        return (out, do["artifact"]) if "artifact" in do else out

    return StructuredTool(
        name=spec["name"], description=spec["name"], args_schema=schema, func=run,
        return_direct=spec.get("direct", False),
        response_format="content_and_artifact" if "artifact" in do else "content")


def handler(spec):
    """`handle_tool_errors`."""
    if isinstance(spec, dict):
        kind = ERRORS[spec["only"]] if "only" in spec else None
        if "words" in spec:
            def words(error: Exception) -> str:
                return spec["words"].format(error)
            return words
        return (kind,)
    return spec


# -------------------------------------------------------------------- models

class Scripted(BaseChatModel):
    script: list
    log: object
    at: list = Field(default_factory=lambda: [0])

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.log.append([[m.type, plain(m.content)] for m in messages])
        spec = self.script[self.at[0]]
        self.at[0] += 1
        if spec[0] == "fail":
            raise Unavailable(spec[1])
        return ChatResult(generations=[ChatGeneration(message=message(spec))])


# -------------------------------------------------------------------- graphs

class State(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    topic: str
    count: int


def own_graph(scenario, models):
    """A graph with the tool node: `start`, an optional scripted model, the nodes `expert` and `worker`."""
    args = {"handle_tool_errors": handler(scenario["errors"])} if "errors" in scenario else {}
    node = ToolNode([tool(one) for one in scenario["tools"]], **args)
    graph = StateGraph(State, context_schema=dict)

    def expert(state):
        return {"messages": [AIMessage(content=f"expert on {state.get('topic')}")]}

    def worker(arg):
        return {"messages": [AIMessage(content=f"worker on {arg['item']}")]}

    def add_others(graph):
        graph.add_node("expert", expert)
        graph.add_node("worker", worker)

    way = scenario.get("way", "node")
    graph.add_node("tools", node)
    if way == "loop":
        graph.add_node("model", lambda state: {"messages": [models[0].invoke(state["messages"])]})
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        add_others(graph)
    elif way == "send":
        def sends(state):
            return [Send("tools", {"__type": "tool_call_with_context", "tool_call": call, "state": dict(state)})
                    for call in state["messages"][-1].tool_calls]
        graph.add_conditional_edges(START, sends, ["tools"])
        add_others(graph)
    elif way == "parent":
        graph.add_edge(START, "tools")
        outer = StateGraph(State, context_schema=dict)
        outer.add_node("inner", graph.compile())
        outer.add_edge(START, "inner")
        add_others(outer)
        graph = outer
    elif way == "condition":
        graph.add_conditional_edges(START, tools_condition)
        add_others(graph)
    else:
        graph.add_edge(START, "tools")
        add_others(graph)
    return graph


def hook(spec):
    """A hook before the model, of both kinds of agents."""
    def choose(state):
        messages = state["messages"]
        if "last" in spec:
            return {"llm_input_messages": messages[-spec["last"]:]}
        kept = messages[-spec["keep"]:]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]}
    return choose


class Hooks(AgentMiddleware):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec

    def wrap_model_call(self, request, handler):
        if "last" in self.spec:
            request = request.override(messages=request.messages[-self.spec["last"]:])
        return handler(request)

    def wrap_tool_call(self, request, handler):
        if request.tool_call["name"] == self.spec.get("answer"):
            return ToolMessage(content="answered by a hook", name=request.tool_call["name"],
                               tool_call_id=request.tool_call["id"])
        out = handler(request)
        if "redact" in self.spec and isinstance(out, ToolMessage) and isinstance(out.content, str):
            out.content = out.content.replace(self.spec["redact"], "***")
        return out


def middleware(scenario, models):
    found = []
    if "hooks" in scenario:
        found.append(Hooks(scenario["hooks"]))
    if "review" in scenario:
        on = {name: True if allowed is True else {"allowed_decisions": allowed}
              for name, allowed in scenario["review"].items()}
        found.append(HumanInTheLoopMiddleware(on))
    if "model_limit" in scenario:
        found.append(ModelCallLimitMiddleware(run_limit=scenario["model_limit"]))
    if "tool_limit" in scenario:
        found.append(ToolCallLimitMiddleware(run_limit=scenario["tool_limit"]))
    for name, limit in scenario.get("limit_of", {}).items():
        found.append(ToolCallLimitMiddleware(tool_name=name, run_limit=limit))
    if len(models) > 1:
        found.append(ModelFallbackMiddleware(*models[1:]))
    return found


def compiled(scenario, models, saver, store):
    tools = [tool(one) for one in scenario.get("tools", [])]
    kind = scenario["kind"]
    if kind == "node":
        return own_graph(scenario, models).compile(checkpointer=saver, store=store)
    if kind == "react":
        node = ToolNode(tools, handle_tool_errors=handler(scenario["errors"])) if "errors" in scenario else tools
        args = {}
        if "prompt" in scenario:
            args["prompt"] = scenario["prompt"]
        if "hooks" in scenario:
            args["pre_model_hook"] = hook(scenario["hooks"])
        return create_react_agent(models[0], node, checkpointer=saver, store=store, context_schema=dict, **args)
    args = {"middleware": middleware(scenario, models)}
    if "prompt" in scenario:
        args["system_prompt"] = scenario["prompt"]
    if "format" in scenario:
        fields = {name: (TYPES[of], ...) for name, of in scenario["format"].items()}
        args["response_format"] = ToolStrategy(create_model("Answer", **fields))
    return create_agent(models[0], tools, checkpointer=saver, store=store, context_schema=dict, **args)


def shown(value):
    """The value of an interrupt; the description of a review is free text."""
    if isinstance(value, dict) and "action_requests" in value:
        actions = [{k: v for k, v in one.items() if k != "description"} for one in value["action_requests"]]
        return {**value, "action_requests": actions}
    return value


def run(scenario):
    log = []
    models = [Scripted(script=script, log=log) for script in scenario.get("scripts", [])]
    saver, store = InMemorySaver(), InMemoryStore()
    store.put(("notes",), "a", {"text": "a stored note"})
    graph = compiled(scenario, models, saver, store)
    records = []
    for step in scenario["steps"]:
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": step.get("limit", 25)}
        if "resume" in step:
            given = Command(resume=step["resume"])
        elif "resume_all" in step:
            ids = [one.id for one in graph.get_state(config).interrupts]
            given = Command(resume=dict(zip(ids, step["resume_all"])))
        else:
            given = {"messages": [message(one) for one in step.get("messages", [])], **step.get("set", {})}
        del log[:]
        record = {}
        try:
            graph.invoke(given, config, context=scenario.get("context", {}))
        except Exception as error:  # noqa: BLE001
            told = type(error).__name__ in (*ERRORS, "Unavailable") and scenario.get("names_error")
            record["error"] = str(error).strip("'") if told else True
        state = graph.get_state(config)
        record["messages"] = [seen(one) for one in state.values.get("messages", [])]
        for name in ("topic", "count"):
            if name in state.values:
                record[name] = state.values[name]
        if state.values.get("structured_response") is not None:
            output = state.values["structured_response"]
            record["output"] = output if isinstance(output, dict) else output.model_dump()
        if state.interrupts:
            record["interrupts"] = [shown(one.value) for one in state.interrupts]
        if log:
            record["saw"] = list(log)
        records.append(record)
    return records


def main():
    target = HERE / "vectors.json"
    before = target.read_text()
    vectors = [{**one, "expect": run(one)} for one in json.loads(before)]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in vectors)
    text = f"[\n{lines}\n]\n"
    if "--check" not in sys.argv:
        target.write_text(text)
    elif before != text:
        sys.exit("the libraries do something else than vectors.json says")
    print(len(vectors), "scenarios")


main()
