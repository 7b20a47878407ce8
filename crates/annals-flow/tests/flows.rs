//! Workflow files: the reference, the schema, the examples, wrong files, and runs of every kind of node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;

use annals_flow::{Error, Flow, FlowEnd, FlowEvent, FlowInput, FlowProblem};
use annals_graph::annals::base::Map;
use annals_graph::prelude::{Store, Value};
use annals_graph::runs::ThreadRuns;
use annals_graph::task::RunControl;
use serde_json::{Value as Json, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn problems(name: &str, text: &str) -> Vec<FlowProblem> {
    match Flow::parse(name, text) {
        Err(Error::File(error)) => error.problems,
        other => panic!("{text}: {other:?}"),
    }
}

/// Runs a workflow whose commands start in a folder, and returns its state.
fn state(text: &str, folder: &std::path::Path) -> Json {
    let flow = Flow::parse(folder.join("flow.toml"), text).unwrap_or_else(|error| panic!("{error}"));
    let thread = Store::memory().thread("t").unwrap();
    match flow.run(&thread, FlowInput::new(), &mut |_| ()).unwrap() {
        FlowEnd::Done { state } => Value::Map(state).to_json(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_block_of_the_reference_is_read() {
    let text = fs::read_to_string(format!("{ROOT}/docs/flows.md")).unwrap();
    let mut read = 0;
    for (language, name) in [("```toml\n", "a.toml"), ("```json\n", "a.json")] {
        for block in text.split(language).skip(1) {
            Flow::parse(name, block.split("```").next().unwrap()).unwrap_or_else(|error| panic!("{error}"));
            read += 1;
        }
    }
    assert_eq!(read, 9);
    let first = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(state(first, folder.path())["greeting"], "Good day, Ada");
}

/// Returns the keys that the hint of an unknown key lists.
fn accepted(text: &str) -> BTreeSet<String> {
    let found = problems("a.toml", text);
    let hints = found.iter().filter_map(|problem| problem.hint.as_deref());
    let listed = hints.filter_map(|hint| hint.strip_prefix("known keys: ")).next().unwrap();
    listed.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_schema_has_the_keys_that_the_parser_accepts() {
    let schema: Json =
        serde_json::from_str(&fs::read_to_string(format!("{ROOT}/docs/workflow.schema.json")).unwrap()).unwrap();
    let keys =
        |at: &str| -> BTreeSet<String> { schema.pointer(at).unwrap().as_object().unwrap().keys().cloned().collect() };
    let node = "/properties/nodes/additionalProperties/properties";
    assert_eq!(keys("/properties"), accepted("zzzzzzzz = 1\n"));
    assert_eq!(keys(node), accepted("[nodes.a]\nzzzzzzzz = 1\n"));
    assert_eq!(keys(&format!("{node}/retry/properties")), accepted("[nodes.a]\nrun = 'a'\nretry = { zzzzzzzz = 1 }\n"));
    assert_eq!(
        keys(&format!("{node}/next/oneOf/2/items/properties")),
        accepted("[nodes.a]\nrun = 'a'\nnext = [{ zzzzzzzz = 1, to = 'a' }]\nstart = 'a'\n")
    );
    let reducers = schema.pointer("/properties/channels/additionalProperties/enum").unwrap().as_array().unwrap();
    for reducer in reducers {
        let text = format!("channels = {{ c = {reducer} }}\n[nodes.a]\nrun = 'true'\n");
        assert!(Flow::parse("a.toml", &text).is_ok(), "{reducer}");
    }
    assert_eq!(reducers.len(), 8);
}

#[test]
fn wrong_files_name_the_place_and_the_next_step() {
    let node = "[nodes.build]\nrun = 'true'\n";
    for (text, line, column, message, hint) in [
        ("", 1, 1, "no nodes", "[nodes.NAME]"),
        ("a b", 1, 3, "", ""),
        (&format!("{node}after = 'biuld'"), 3, 9, "`biuld` does not exist", "did you mean `build`?"),
        (&format!("{node}nxt = 'build'"), 3, 1, "unknown key `nxt`", "did you mean `next`?"),
        (&format!("{node}timeout = '5'"), 3, 11, "`5` is not a duration", "500ms"),
        (&format!("{node}wait = '5s'"), 3, 1, "has `wait` too", "one of run"),
        (&format!("{node}into = 'x'"), 3, 8, "channel `x` does not exist", "[channels]"),
        (&format!("{node}next = 'b'\n[nodes.b]\nrun = 'true'\nnext = 'build'"), 1, 8, "no first node", "start ="),
        (&format!("{node}next = [{{ if = 'n = 3', to = 'end' }}]"), 3, 19, "expected an operator", "flows.md"),
        (&format!("{node}next = ['end', {{ to = 'end' }}]"), 3, 8, "mixes", "to ="),
        (&format!("{node}parallel = 65"), 3, 12, "", ""),
        (&format!("{node}retry = {{ attempts = 0 }}"), 3, 22, "from 1 to 1000", ""),
        ("[nodes.end]\nrun = 'a'", 1, 8, "cannot be a name", "letters"),
        ("[nodes.a]\nask = 'x'", 2, 1, "needs `into`", "into ="),
        ("[nodes.a]\nask = 'x'\nanswer = 'bool'", 3, 10, "`bool` is not known", "one of boolean, integer"),
        ("[nodes.a]\nask = 'x'\nanswer = 'text'\nchoices = ['a']", 4, 11, "has `answer` too", "leave out"),
        ("[nodes.a]\nask = 'x'\nchoices = []", 3, 11, "a list of choices", "at most 100"),
        ("[nodes.a]\nask = 'x'\nchoices = [['a']]", 3, 11, "a list of choices", "texts, numbers"),
        ("[nodes.a]\nrun = 'a'\nmatrix = {}", 3, 10, "the matrix has no list", "matrix ="),
        ("[nodes.a]\nrun = 'a'\nmatrix = { x = [] }", 3, 16, "expected a list", "an item at least"),
        ("[nodes.a]\nrun = 'a'\nmatrix = { PATH = [1] }", 3, 12, "cannot be a name", "variable"),
        ("[nodes.a]\nrun = 'a'\nmatrix = { x = [1] }", 3, 10, "`matrix` needs `into`", "CHANNEL"),
        ("outputs = { x = '= y' }\n[nodes.a]\nset = {}", 1, 17, "channel `y` does not exist", ""),
        ("[nodes.a]\nset = {}\nanswer = 'text'", 3, 1, "`answer` does not belong", ""),
        ("channels = { n = 'sum' }\n[nodes.a]\nset = { n = \"='Load ' + n\" }", 3, 13, "text and a number", "flows.md"),
        ("[nodes.a]\nworkflow = 'absent.toml'", 2, 12, "does not exist", ""),
        ("[nodes.a]\nhttp = 'https://a.example'", 2, 8, "does not begin with http://", "curl"),
        ("[nodes.a]\nhttp = 'http://a.example'\nbody = 1\nmethod = 'GET'", 3, 8, "has no body", "POST"),
        ("[nodes.a]\nhttp = 'http://a.example'\nheaders = { 'a b' = 1 }", 3, 13, "a header has a name", ""),
        ("[nodes.a]\nhttp = 'http://a.example'\nenv = {}", 3, 1, "does not belong to a node with `http`", ""),
        ("[nodes.a]\nset = {}\nmethod = 'GET'", 3, 1, "does not belong to a node with `set`", ""),
        ("channels = { n = 'lsat' }\n[nodes.a]\nrun = 'a'", 1, 18, "`lsat` is not known", "did you mean `last`?"),
    ] {
        let found = problems("a.toml", text);
        let fits = |problem: &FlowProblem| {
            let shown = problem.hint.as_deref().unwrap_or_default();
            (problem.line, problem.column) == (line, column)
                && problem.message.contains(message)
                && shown.contains(hint)
        };
        assert!(found.iter().any(fits), "{text}: {found:#?}");
    }
    let many: String = (0..1_001).map(|n| format!("[nodes.n{n}]\nrun = 'a'\n")).collect();
    assert!(problems("a.toml", &many)[0].message.contains("more than 1000 nodes"));
    assert!(matches!(Flow::parse("a.toml", &" ".repeat(2 << 20)), Err(Error::FileTooLong { .. })));
    let json = problems("a.json", "{\"nodes\": {\n \"a\": {\"rn\": 1}}}");
    assert!(json.iter().any(|problem| (problem.line, problem.column) == (2, 8)), "{json:?}");
}

#[test]
fn the_examples_are_read() {
    for file in fs::read_dir(format!("{ROOT}/examples/workflows")).unwrap() {
        let flow = Flow::open(file.unwrap().path()).unwrap();
        assert!(flow.description().is_some() && flow.drawing(0).nodes.len() > 4, "{}", flow.name());
    }
}

#[test]
fn a_default_and_a_mapped_list_are_values_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        channels = { hotels = "last", names = "last", city = "last", note = "last" }
        input = { hotels = [{ name = "Adler", stars = 3 }, { stars = 4 }] }
        [nodes.a]
        set = { names = "= map(hotels, (item.name ?? 'unknown') + ' ' + str(item.stars))", note = "= 'in ' + (city ?? 'Bern')" }
    "#;
    let end = state(text, folder.path());
    assert_eq!((&end["names"], &end["note"]), (&json!(["Adler 3", "unknown 4"]), &json!("in Bern")));
    let wrong = problems("a.toml", "channels = { n = 'sum' }\n[nodes.a]\nset = { n = '= map(n, item)' }");
    assert!(wrong[0].message.contains("map() takes a list"), "{wrong:?}");
}

#[cfg(unix)]
#[test]
fn a_workflow_has_parameters_and_results_and_shares_no_channel() {
    let folder = tempfile::tempdir().unwrap();
    let inner = "channels = { title = 'last', verdict = 'last', n = 'sum' }\ninput = { n = 5, title = 'none' }\n\
                 outputs = { verdict = '= verdict', size = '= n' }\n[nodes.count]\nset = { n = 1 }\n\
                 [nodes.ask]\nafter = 'count'\nask = '= title + \"?\"'\nchoices = ['ship', 'wait']\ninto = 'verdict'\n";
    fs::write(folder.path().join("inner.toml"), inner).unwrap();
    let outer = "channels = { n = 'sum', found = 'last' }\noutputs = { all = '= found', n = '= n' }\n\
                 [nodes.a]\nset = { n = 1 }\n[nodes.b]\nafter = 'a'\nworkflow = 'inner.toml'\n\
                 with = { title = \"= 'Release ' + str(n)\" }\ninto = 'found'\n";
    let parse = |text: &str| Flow::parse(folder.path().join("outer.toml"), text);
    let (flow, thread) = (parse(outer).unwrap_or_else(|error| panic!("{error}")), Store::memory().thread("t").unwrap());
    let quiet = &mut |_: FlowEvent| ();
    let waiting = flow.run(&thread, FlowInput::new(), quiet).unwrap();
    let FlowEnd::Interrupted { interrupts, .. } = waiting else { panic!("{waiting:?}") };
    assert_eq!(interrupts[0].value, Value::from("Release 1?"));
    let refused = flow.run(&thread, FlowInput::new().resume("no"), quiet).unwrap_err().to_string();
    assert!(refused.contains("one of \"ship\", \"wait\""), "{refused}");
    let done = flow.run(&thread, FlowInput::new().resume("ship"), quiet).unwrap();
    let FlowEnd::Done { state } = done else { panic!("{done:?}") };
    assert_eq!(Value::Map(state).to_json(), json!({ "all": { "verdict": "ship", "size": 6 }, "n": 1 }));
    // The end of a run is shown again with its outputs.
    assert!(
        matches!(flow.run(&thread, FlowInput::new(), quiet), Ok(FlowEnd::Done { state }) if state.contains_key("all"))
    );

    let wrong = outer.replace("title =", "titel =");
    let Err(Error::File(error)) = parse(&wrong) else { panic!("{wrong}") };
    assert_eq!((error.problems[0].line, error.problems[0].column), (8, 10), "{error}");
    assert!(error.to_string().contains("has no channel `titel`") && error.to_string().contains("`title`"), "{error}");
    let late = "channels = { n = 'last' }\noutputs = { x = '= n + 1' }\n[nodes.a]\nset = { n = 'text' }\n";
    let failed = parse(late).unwrap().run(&Store::memory().thread("t").unwrap(), FlowInput::new(), quiet);
    assert!(matches!(&failed, Err(Error::Outputs { reason }) if reason.contains("`+` between")), "{failed:?}");
}

#[cfg(unix)]
#[test]
fn a_matrix_runs_each_combination_and_repeats_none() {
    let folder = tempfile::tempdir().unwrap();
    let text = "channels = { versions = 'last', built = 'last' }\ninput = { versions = [1, 2] }\n[nodes.build]\n\
                matrix = { os = ['linux', 'mac'], version = '= versions' }\nparallel = 2\ninto = 'built'\n\
                run = 'echo $os-$version >> ran; [ $os$version != mac1 ] || [ -e mended ] || exit 3; echo $os-$version'\n";
    let flow = Flow::parse(folder.path().join("a.toml"), text).unwrap_or_else(|error| panic!("{error}"));
    let thread = Store::memory().thread("t").unwrap();
    let failed = flow.run(&thread, FlowInput::new(), &mut |_| ()).unwrap_err().to_string();
    assert!(failed.contains("exit code 3"), "{failed}");
    fs::write(folder.path().join("mended"), "").unwrap();
    let done = flow.run(&thread, FlowInput::new(), &mut |_| ()).unwrap();
    let FlowEnd::Done { state } = done else { panic!("{done:?}") };
    assert_eq!(state["built"].to_json(), json!(["linux-1", "linux-2", "mac-1", "mac-2"]));
    let ran = fs::read_to_string(folder.path().join("ran")).unwrap();
    assert_eq!(ran.lines().filter(|line| line.starts_with("linux")).count(), 2, "{ran}");
    assert_eq!(ran.lines().filter(|line| *line == "mac-1").count(), 2, "{ran}");
}

#[cfg(unix)]
#[test]
fn a_secret_is_stored_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let text = "secrets = ['TOKEN']\nchannels = { seen = 'last', list = 'last' }\n[nodes.a]\nrun = 'echo got $TOKEN'\n\
                into = 'seen'\n[nodes.b]\nafter = 'a'\nmatrix = { n = [1, 2] }\nrun = 'echo $n $TOKEN'\ninto = 'list'\n\
                [nodes.c]\nafter = 'b'\nrun = 'echo bad $TOKEN >&2; exit 3'\n";
    let flow = || Flow::parse(folder.path().join("a.toml"), text).unwrap_or_else(|error| panic!("{error}"));
    let file = folder.path().join("store.db");
    let thread = Store::open(&file).unwrap().thread("t").unwrap();
    let missing = flow().run(&thread, FlowInput::new(), &mut |_| ()).unwrap_err();
    assert!(matches!(&missing, Error::MissingSecret { name } if name == "TOKEN"), "{missing}");
    assert!(thread.head().unwrap().is_none(), "nothing ran");
    let known = flow().secrets(|_| Some("hunter-2-hunter".to_owned()));
    let failed = known.run(&thread, FlowInput::new(), &mut |_| ()).unwrap_err().to_string();
    assert!(failed.contains("bad ***"), "{failed}");
    let values = Value::Map(thread.head().unwrap().unwrap().values().unwrap()).to_json();
    assert_eq!((&values["seen"], &values["list"]), (&json!("got ***"), &json!(["1 ***", "2 ***"])));
    for name in ["store.db", "store.db-wal"] {
        let bytes = fs::read(folder.path().join(name)).unwrap_or_default();
        assert!(!bytes.windows(8).any(|part| part == b"hunter-2"), "{name}");
    }
    let header = "secrets = 'KEY'\nchannels = { s = 'last' }\n[nodes.a]\nhttp = 'http://a.example'\n";
    let wrong = problems("a.toml", &format!("{header}headers = {{ X-A = '= secrets.KEI' }}"));
    assert_eq!((wrong[0].line, wrong[0].message.as_str()), (5, "there is no such secret"), "{wrong:?}");
    assert!(Flow::parse("a.toml", &format!("{header}headers = {{ X-A = \"= 'Bearer ' + secrets.KEY\" }}")).is_ok());
    let wrong = problems("a.toml", &format!("{header}into = '= secrets.KEY'\nbody = '= secrets.KEY'"));
    assert!(wrong.iter().any(|problem| problem.message.contains("`secrets` does not exist")), "{wrong:?}");
}

#[cfg(unix)]
#[test]
fn commands_read_the_state_and_print_updates() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        channels = { n = "sum", seen = "last", list = "append", small = "min", part = "last" }
        input = { n = 4, list = ["x"] }
        [nodes.a]
        run = "cat > state.json; echo '{\"n\": 3, \"list\": [\"y\"], \"small\": 2}'"
        [nodes.b]
        after = "a"
        run = ["cat", "state.json"]
        into = "seen"
        format = "json"
        [nodes.c]
        after = "a"
        run = "echo '{\"small\": 1}'"
        [nodes.d]
        after = ["b", "c"]
        set = { n = "=n + 1", part = "=seen.list[0]" }
    "#;
    let end = state(text, folder.path());
    assert_eq!(end, json!({"n": 15, "seen": {"n": 4, "list": ["x"]}, "list": ["x", "y"], "small": 1, "part": "x"}));
}

#[cfg(unix)]
#[test]
fn a_workflow_contains_another_one_and_never_itself() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("inner.toml"), "channels = { n = 'sum' }\n[nodes.x]\nset = { n = 5 }\n").unwrap();
    let outer =
        "channels = { n = 'sum' }\n[nodes.a]\nset = { n = 1 }\n[nodes.b]\nafter = 'a'\nworkflow = 'inner.toml'\n";
    let flow = Flow::parse(folder.path().join("outer.toml"), outer).unwrap();
    let mut started = Vec::new();
    let thread = Store::memory().thread("t").unwrap();
    let mut note = |event| {
        if let FlowEvent::Started { node, .. } = event {
            started.push(node);
        }
    };
    assert!(matches!(flow.run(&thread, FlowInput::new(), &mut note), Ok(FlowEnd::Done { .. })));
    assert_eq!(started, ["a", "b", "b/x"]);
    let own = folder.path().join("own.toml");
    fs::write(&own, "[nodes.a]\nworkflow = 'own.toml'\n").unwrap();
    let error = Flow::open(&own).unwrap_err().to_string();
    assert!(error.contains("cannot contain itself"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_workflow_maps_a_list_and_repeats_no_item_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let inner = "channels = { item = 'last', n = 'sum', seen = 'last' }\ninput = { n = 100 }\n[nodes.add]\n\
                 set = { n = '= item' }\n[nodes.note]\nafter = 'add'\ninto = 'seen'\n\
                 run = ['sh', '-c', 'echo $1 >> ran; [ $1 != 3 ] || [ -e mended ] || exit 9; echo item $1', '-', '= item']\n";
    fs::write(path.join("inner.toml"), inner).unwrap();
    let outer = "channels = { list = 'last', results = 'last' }\ninput = { list = [1, 2, 3, 4] }\n[nodes.each]\n\
                 each = 'list'\nworkflow = 'inner.toml'\ninto = 'results'\nparallel = 2\n";
    let flow = Flow::parse(path.join("outer.toml"), outer).unwrap_or_else(|error| panic!("{error}"));
    let thread = Store::memory().thread("t").unwrap();
    let failed = flow.run(&thread, FlowInput::new(), &mut |_| ());
    assert!(failed.unwrap_err().to_string().contains("exit code 9"));
    fs::write(path.join("mended"), "").unwrap();
    let FlowEnd::Done { state } = flow.run(&thread, FlowInput::new(), &mut |_| ()).unwrap() else { panic!("it ends") };
    let results = Value::Map(state).to_json()["results"].clone();
    let expected: Vec<Json> = (1..=4).map(|n| json!({"item": n, "n": 100 + n, "seen": format!("item {n}")})).collect();
    assert_eq!(results, Json::Array(expected));
    let ran = fs::read_to_string(path.join("ran")).unwrap();
    let times = |item: &str| ran.lines().filter(|line| *line == item).count();
    assert_eq!((times("1"), times("2"), times("3")), (1, 1, 2), "{ran}");

    for (node, message, hint) in [
        ("each = 'list'\nworkflow = 'inner.toml'", "`each` needs `into`", "CHANNEL"),
        ("workflow = 'inner.toml'\ninto = 'results'", "`into` needs `each`", "shared"),
        ("each = 'list'\nworkflow = 'bare.toml'\ninto = 'results'", "has no channel `item`", "item = \"last\""),
    ] {
        fs::write(path.join("bare.toml"), "[nodes.a]\nset = {}\n").unwrap();
        let text = format!("channels = {{ list = 'last', results = 'last' }}\n[nodes.a]\n{node}\n");
        let Err(Error::File(error)) = Flow::parse(path.join("a.toml"), &text) else { panic!("{text}") };
        let fits = |problem: &FlowProblem| {
            problem.message.contains(message) && problem.hint.as_deref().unwrap_or_default().contains(hint)
        };
        assert!(error.problems.iter().any(fits), "{node}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn a_cancelled_run_kills_its_command_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let text = "channels = { n = 'sum' }\n[nodes.a]\nset = { n = 1 }\n[nodes.b]\nafter = 'a'\n\
                run = '[ -e again ] || sleep 600; echo \"{\\\"n\\\": 2}\"'\n[nodes.c]\nafter = 'b'\nwait = '1ms'\n";
    let flow = Flow::parse(folder.path().join("a.toml"), text).unwrap();
    let thread = Store::memory().thread("t").unwrap();
    let control = RunControl::new();
    let own = control.clone();
    let mut cancel = move |event| {
        if event == (FlowEvent::Started { node: "b".into(), item: None }) {
            own.cancel("enough");
        }
    };
    let stopped = flow.run(&thread, FlowInput::new().control(&control), &mut cancel);
    assert!(matches!(&stopped, Err(Error::Stopped { reason }) if reason == "enough"), "{stopped:?}");
    fs::write(folder.path().join("again"), "").unwrap();
    let mut started = Vec::new();
    let ended = flow.run(&thread, FlowInput::new(), &mut |event| started.push(event)).unwrap();
    assert!(matches!(&ended, FlowEnd::Done { state } if state["n"] == 3), "{ended:?}");
    assert!(!started.contains(&FlowEvent::Started { node: "a".into(), item: None }), "{started:?}");
}

#[cfg(unix)]
#[test]
fn wrong_uses_are_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let flow = |text: &str| Flow::parse(folder.path().join("a.toml"), text).unwrap();
    let thread = || Store::memory().thread("t").unwrap();
    let quiet = &mut |_: FlowEvent| ();
    let plain = flow("[nodes.a]\nrun = 'true'\n");
    let values: Map = [("nope".to_owned(), Value::from(1))].into_iter().collect();
    let unknown = plain.run(&thread(), FlowInput::new().values(values), quiet);
    assert!(matches!(unknown, Err(Error::UnknownChannel { ref channel }) if channel == "nope"), "{unknown:?}");
    assert!(matches!(plain.run(&thread(), FlowInput::new().resume(1), quiet), Err(Error::NotWaiting)));
    for (node, message) in [
        ("run = 'echo 3'", "not an object of channels"),
        ("run = 'echo {'", "is not JSON"),
        ("run = ['no-such-program']", "cannot be started"),
        ("run = 'sleep 9'\ntimeout = '50ms'", "timeout of 50ms"),
        ("run = 'exit 4'\nretry = { attempts = 2 }", "exit code 4"),
    ] {
        let failed = flow(&format!("[nodes.a]\n{node}\n")).run(&thread(), FlowInput::new(), quiet);
        let error = failed.unwrap_err();
        assert!(matches!(&error, Error::Run(run) if run.is_user()), "{error:?}");
        assert!(error.to_string().contains(message), "{node}: {error}");
    }
}

#[test]
fn an_answer_has_the_type_that_the_node_asks_for() {
    let quiet = &mut |_: FlowEvent| ();
    let flow = |answer: &str| {
        let text = format!("channels = {{ x = 'last' }}\n[nodes.a]\nask = 'ok?'\ninto = 'x'\n{answer}\n");
        Flow::parse("a.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    };
    for (answer, wrong, right, expected) in [
        ("answer = 'boolean'", json!("yes"), json!(true), "true or false"),
        ("answer = 'integer'", json!(1.5), json!(3), "an integer"),
        ("answer = 'number'", json!("3"), json!(2.5), "a number"),
        ("answer = 'text'", json!(12), json!("12"), "a text"),
        ("choices = ['red', 3, true]", json!("green"), json!(3), "one of \"red\", 3, true"),
    ] {
        let (flow, thread) = (flow(answer), Store::memory().thread("t").unwrap());
        let Ok(FlowEnd::Interrupted { interrupts, .. }) = flow.run(&thread, FlowInput::new(), quiet) else { panic!() };
        let head = thread.head().unwrap();
        let refused = flow.run(&thread, FlowInput::new().resume(Value::from(wrong.clone())), quiet).unwrap_err();
        let Error::ResumeValue { channel, expected: told, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!((channel.as_str(), told.as_str()), ("x", expected), "{answer}");
        assert!(refused.to_string().ends_with("; the interrupt stays open"), "{refused}");
        // The store refuses it too, without the file.
        assert!(thread.resume_interrupt(&interrupts[0].id, Value::from(wrong)).is_err(), "{answer}");
        assert_eq!((thread.head().unwrap(), thread.open_interrupts().unwrap().len()), (head, 1));
        let done = flow.run(&thread, FlowInput::new().resume(Value::from(right.clone())), quiet).unwrap();
        let FlowEnd::Done { state } = done else { panic!("{done:?}") };
        assert_eq!(state["x"].to_json(), right, "{answer}");
    }
    // Without a type any value fits.
    let (flow, thread) = (flow(""), Store::memory().thread("t").unwrap());
    flow.run(&thread, FlowInput::new(), quiet).unwrap();
    assert!(matches!(flow.run(&thread, FlowInput::new().resume("x"), quiet), Ok(FlowEnd::Done { .. })));
}

#[cfg(unix)]
#[test]
fn the_events_of_a_list_name_the_item() {
    let folder = tempfile::tempdir().unwrap();
    let inner = "channels = { item = 'last', n = 'sum' }\n[nodes.add]\nset = { n = '= item.size' }\n";
    fs::write(folder.path().join("inner.toml"), inner).unwrap();
    let text = "channels = { names = 'last', rows = 'last', out = 'last', ends = 'last' }\n\
                input = { names = ['x', 'y'], rows = [{ size = 2 }] }\n\
                [nodes.say]\neach = 'names'\nrun = 'test $ITEM = x'\ninto = 'out'\n\
                [nodes.inside]\neach = 'rows'\nworkflow = 'inner.toml'\ninto = 'ends'\n";
    let flow = Flow::parse(folder.path().join("a.toml"), text).unwrap_or_else(|error| panic!("{error}"));
    let mut events = BTreeSet::new();
    let failed = flow.run(&Store::memory().thread("t").unwrap(), FlowInput::new(), &mut |event| {
        let (word, node, item) = match event {
            FlowEvent::Started { node, item } => ("started", node, item),
            FlowEvent::Finished { node, item } => ("finished", node, item),
            FlowEvent::Failed { node, item, .. } => ("failed", node, item),
            other => panic!("{other:?}"),
        };
        let item = item.map(|item| format!(" {}", item.to_json())).unwrap_or_default();
        events.insert(format!("{word} {node}{item}"));
    });
    assert!(failed.is_err());
    for event in [
        "started say",
        "started say \"x\"",
        "finished say \"x\"",
        "failed say \"y\"",
        "failed say",
        "started inside {\"size\":2}",
        "started inside/add {\"size\":2}",
        "finished inside/add {\"size\":2}",
    ] {
        assert!(events.contains(event), "{event}: {events:#?}");
    }
}

#[test]
fn a_file_whose_node_was_renamed_before_a_join_is_refused_by_name() {
    let flow = |first: &str| {
        let text = format!(
            "channels = {{ x = 'last', n = 'sum' }}\n[nodes.{first}]\nset = {{ n = 1 }}\n[nodes.wait]\nset = {{}}\n\
             [nodes.ask]\nafter = 'wait'\nask = 'ok?'\ninto = 'x'\n[nodes.b]\nafter = 'ask'\nset = {{ n = 1 }}\n\
             [nodes.last]\nafter = ['{first}', 'b']\nset = {{ n = 10 }}\n"
        );
        Flow::parse("a.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    };
    let (thread, quiet) = (Store::memory().thread("t").unwrap(), &mut |_: FlowEvent| ());
    flow("first").run(&thread, FlowInput::new(), quiet).unwrap();
    let refused = flow("other").run(&thread, FlowInput::new().resume(true), quiet).unwrap_err().to_string();
    assert!(refused.contains("\"first\" reached the join before node \"last\""), "{refused}");
    let done = flow("first").run(&thread, FlowInput::new().resume(true), quiet).unwrap();
    assert!(matches!(&done, FlowEnd::Done { state } if state["n"] == 12), "{done:?}");
}
