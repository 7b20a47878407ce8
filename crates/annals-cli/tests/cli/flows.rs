//! Workflows that are written as a file: the examples, runs that are killed, errors with their places.

use std::time::Duration;

use annals::base::{Clock as _, SystemClock};

use super::*;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workflows");

fn example(name: &str) -> String {
    format!("{EXAMPLES}/{name}.toml")
}

fn sh(folder: &Path, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// The last document of a run with `--json`, and those before it.
pub(crate) fn lines(output: &Output) -> (Vec<Json>, Json) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut documents: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = documents.pop().unwrap_or_else(|| panic!("{output:?}"));
    (documents, end)
}

fn ends(bench: &Bench, name: &str, thread: &str, input: &Json) -> Json {
    let input = input.to_string();
    let output = bench.annals(&["run", &example(name), "--thread", thread, "--input", &input, "--json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    lines(&output).1
}

/// The documents of a run that waits, fails and pauses nowhere: its events and its end.
pub(crate) fn documents() -> (Vec<Json>, Json) {
    let bench = Bench::new();
    let input = json!({ "project": bench.folder.path(), "build": "true", "test": "false" }).to_string();
    lines(&bench.annals(&["run", &example("build"), "--input", &input, "--json"]))
}

pub(crate) fn drawing() -> Json {
    Bench::new().json(&["graph", &example("history")])
}

#[test]
fn the_links_of_a_folder_are_checked() {
    let bench = Bench::new();
    let notes = bench.path("notes");
    let end = ends(&bench, "links", "bad", &json!({ "folder": notes }));
    assert_eq!(end["state"]["dead"], json!(["boats.md: gone.md"]));
    assert_eq!(end["state"]["report"], "there are dead links");
    fs::write(notes.join("gone.md"), "# Found\n").unwrap();
    let end = ends(&bench, "links", "good", &json!({ "folder": notes }));
    assert_eq!((&end["event"], &end["state"]["report"]), (&json!("done"), &json!("all links lead to a file")));
}

#[test]
fn a_build_is_tried_again_and_asks_for_its_tag() {
    let bench = Bench::new();
    let project = bench.path("notes");
    sh(&project, "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one");
    // It fails at its first attempt, and the tests fail in their first round.
    let build = "[ -e tried ] || { touch tried; echo no >&2; exit 1; }; echo built";
    let test = "[ -e tested ] || { touch tested; exit 7; }";
    let input = json!({ "project": project, "build": build, "test": test }).to_string();
    let file = example("build");
    let waiting = bench.annals(&["run", &file, "--input", &input, "--json"]);
    assert_eq!(code(&waiting), 1, "{waiting:?}");
    let (events, end) = lines(&waiting);
    assert_eq!((&end["event"], &end["state"]["rounds"]), (&json!("interrupted"), &json!(2)));
    assert!(end["question"].as_str().unwrap().starts_with("The tests passed. Which tag?"), "{end}");
    assert!(events.iter().any(|event| event["event"] == "waiting"), "{events:?}");
    // Nothing is lost or repeated by asking again, and the resume value ends it.
    assert_eq!(code(&bench.annals(&["run", &file])), 1);
    let done = bench.annals(&["run", &file, "--answer", "v1", "--json"]);
    assert_eq!((code(&done), &lines(&done).1["state"]["result"]), (0, &json!("tagged v1")));
    sh(&project, "git rev-parse -q --verify refs/tags/v1");
    let late = bench.annals(&["run", &file, "--answer", "v2"]);
    assert_eq!(code(&late), 2, "{late:?}");
    // A run that has ended is shown, and nothing runs.
    let again = bench.annals(&["run", &file, "--json"]);
    assert_eq!((code(&again), lines(&again).0), (0, vec![]));
}

/// Each command of this test is a process of its own, so the run goes on in another process after each of them.
#[test]
fn a_release_asks_in_another_workflow_and_stores_no_secret() {
    let bench = Bench::new();
    let review = "channels = { title = 'last', verdict = 'last' }\noutputs = { verdict = '= verdict' }\n[nodes.ask]\n\
                  ask = '= title'\nchoices = ['ship', 'wait']\ninto = 'verdict'\n";
    fs::write(bench.path("review.toml"), review).unwrap();
    let release = "name = 'release'\nsecrets = ['RELEASE_TOKEN']\noutputs = { url = '= url', built = '= built' }\n\
        channels = { tag = 'last', built = 'last', review = 'last', url = 'last' }\n[nodes.build]\n\
        matrix = { os = ['linux', 'mac'], arch = ['x64', 'arm'] }\nrun = 'echo $os-$arch | tee -a ran'\ninto = 'built'\n\
        [nodes.review]\nafter = 'build'\nworkflow = 'review.toml'\ninto = 'review'\n\
        with = { title = \"= 'Ship ' + (tag ?? 'next') + ' with ' + str(len(built)) + ' files?'\" }\n\
        next = [{ if = \"review.verdict == 'ship'\", to = 'publish' }]\n\
        [nodes.publish]\nrun = 'echo https://a.example/?token=$RELEASE_TOKEN'\ninto = 'url'\n";
    fs::write(bench.path("release.toml"), release).unwrap();
    let annals = |arguments: &[&str], token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args(["run", "release.toml", "--store", "release.db", "--json"]).args(arguments);
        command.current_dir(bench.folder.path()).stdin(Stdio::null()).env_remove("RELEASE_TOKEN");
        command.envs(token.map(|token| ("RELEASE_TOKEN", token))).output().unwrap()
    };
    let missing = annals(&[], None);
    assert!(code(&missing) == 2 && stderr(&missing).contains("secret `RELEASE_TOKEN`"), "{missing:?}");
    let waiting = annals(&[], Some("tiger-tiger"));
    assert_eq!((code(&waiting), &lines(&waiting).1["question"]), (1, &json!("Ship next with 4 files?")), "{waiting:?}");
    let refused = annals(&["--answer", "maybe"], Some("tiger-tiger"));
    assert!(code(&refused) == 2 && stderr(&refused).contains("one of"), "{refused:?}");
    let done = annals(&["--answer", "ship"], Some("tiger-tiger"));
    let state =
        json!({ "url": "https://a.example/?token=***", "built": ["linux-x64", "linux-arm", "mac-x64", "mac-arm"] });
    assert_eq!((code(&done), &lines(&done).1["state"]), (0, &state), "{done:?}");
    assert_eq!(fs::read_to_string(bench.path("ran")).unwrap().lines().count(), 4, "no file is built twice");
    let stored = fs::read(bench.path("release.db")).unwrap();
    assert!(!stored.windows(11).any(|part| part == b"tiger-tiger"));
}

#[test]
fn a_git_history_is_summarised() {
    let bench = Bench::new();
    let folder = bench.path("notes");
    sh(
        &folder,
        "git init -q . && git config user.name Ada && git config user.email a@b && git add boats.md
         GIT_AUTHOR_DATE=2026-01-02T00:00:00Z git commit -q -m one && echo more >> boats.md && git add .
         GIT_AUTHOR_DATE=2026-02-02T00:00:00Z git commit -q -m two",
    );
    let end = ends(&bench, "history", "h", &json!({ "repository": folder }));
    let state = &end["state"];
    assert_eq!((&state["commits"], &state["authors"]), (&json!(2), &json!(["2 Ada"])));
    assert_eq!(state["months"], json!(["1 2026-01", "1 2026-02"]));
    assert_eq!(state["summary"], "2 commits; most by: 2 Ada; most changed: 2 boats.md");
}

/// The run of an example that is killed at moments which a seed decides, and is continued each time, has the output of
/// a run that nothing disturbed.
#[test]
fn an_example_that_is_killed_has_the_same_output() {
    // The moments at which the run is killed, and the threads on which they are spread.
    let (moments, threads) = (cases(12, 100), cases(4, 20));
    let bench = Bench::new();
    let notes = bench.path("notes");
    for n in 0..12 {
        fs::write(notes.join(format!("{n}.md")), format!("[next]({}.md) [gone](gone-{n}.md)\n", (n + 1) % 12)).unwrap();
    }
    let input = json!({ "folder": notes }).to_string();
    let start = |thread: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args([
            "run",
            &example("links"),
            "--store",
            "links.db",
            "--json",
            "--thread",
            thread,
            "--input",
            &input,
        ]);
        command.current_dir(bench.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let begin = SystemClock.elapsed();
    let whole = lines(&start("whole").wait_with_output().unwrap()).1["state"].clone();
    let mut took = u64::try_from((SystemClock.elapsed() - begin).as_millis()).unwrap().max(1);
    assert_eq!(whole["dead"].as_array().map(Vec::len), Some(13), "{whole}");
    let (mut seed, mut kills) = (0x2545_F491_4F6C_DD1D_u64, 0);
    let mut run = 0;
    // A first run that stood still makes the first delays too long: then more runs are begun.
    while run < moments || kills < moments / 4 {
        assert!(run < 20 * moments, "only {kills} kills met a run");
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let mut child = start(&format!("killed-{}", run % threads));
        std::thread::sleep(Duration::from_millis(seed % took));
        // The first run may have been the slowest one: the delays follow the runs, so that half of them are killed.
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
            took += took / 16 + 1;
        } else {
            took = (took - took / 16).max(2);
        }
        child.wait().unwrap();
        run += 1;
    }
    for thread in 0..threads {
        let done = start(&format!("killed-{thread}")).wait_with_output().unwrap();
        assert_eq!(lines(&done).1["state"], whole, "killed-{thread}");
    }
    let check = bench.annals_on("links.db", &["check"]);
    assert_eq!(code(&check), 0, "{check:?}");
}

/// A run whose list is mapped when it is killed maps no item again that has ended.
#[test]
fn a_run_that_is_killed_in_a_list_ends_the_same() {
    let bench = Bench::new();
    let text = "channels = { items = 'last', out = 'last' }\ninput = { items = [1, 2, 3, 4, 5, 6, 7, 8] }\n[nodes.each]\n\
                each = 'items'\ninto = 'out'\nformat = 'json'\nparallel = 2\nrun = 'sleep 0.03; echo $((ITEM * ITEM))'\n";
    fs::write(bench.path("list.toml"), text).unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args(["run", "list.toml", "--json"]).current_dir(bench.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for wait in [20, 60, 100] {
        let mut child = start();
        std::thread::sleep(Duration::from_millis(wait));
        _ = child.kill();
        child.wait().unwrap();
    }
    let done = start().wait_with_output().unwrap();
    assert_eq!(lines(&done).1["state"]["out"], json!([1, 4, 9, 16, 25, 36, 49, 64]));
}

#[test]
fn errors_show_the_place() {
    let bench = Bench::new();
    fs::write(bench.path("bad.toml"), "[nodes.build]\nrun = 'true'\nnext = 'biuld'\n").unwrap();
    let bad = bench.annals(&["run", "bad.toml"]);
    let text = String::from_utf8(bad.stderr.clone()).unwrap();
    assert_eq!(code(&bad), 2, "{text}");
    for part in [
        "bad.toml:3:8: node `biuld` does not exist",
        "3 | next = 'biuld'",
        "  |        ^^^^^^^",
        "did you mean `build`?",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(code(&bench.annals(&["run", "absent.toml"])), 3);
    fs::write(bench.path("fails.toml"), "[nodes.a]\nrun = 'echo broken >&2; exit 3'\n").unwrap();
    let failed = bench.annals(&["run", "fails.toml"]);
    let text = String::from_utf8(failed.stderr.clone()).unwrap();
    assert_eq!(code(&failed), 70, "{text}");
    assert!(text.contains("exit code 3: broken") && text.contains("repeat the command"), "{text}");
}

#[test]
fn a_workflow_is_drawn_in_four_formats() {
    let bench = Bench::new();
    let file = example("links");
    assert!(bench.text(&["graph", &file]).contains("list --> check;"));
    assert!(bench.text(&["graph", &file, "--format", "dot"]).starts_with("digraph"));
    assert!(bench.text(&["graph", &file, "--format", "text"]).contains("│ merge │"));
    let svg = bench.text(&["graph", &file, "--format", "svg"]);
    assert!(svg.starts_with("<svg ") && svg.contains(">merge</text>") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn an_answer_is_read_as_the_type_that_the_node_asks_for() {
    let bench = Bench::new();
    let text = "channels = { size = 'last', tag = 'last', ok = 'last' }\n\
                [nodes.size]\nask = 'size?'\nchoices = ['small', 12]\ninto = 'size'\n\
                [nodes.tag]\nafter = 'size'\nask = 'tag?'\nanswer = 'text'\ninto = 'tag'\n\
                [nodes.ok]\nafter = 'tag'\nask = 'ok?'\nanswer = 'boolean'\ninto = 'ok'\n";
    fs::write(bench.path("ask.toml"), text).unwrap();
    let run = |more: &[&str]| bench.annals(&[&["run", "ask.toml"], more].concat());
    let waiting = run(&[]);
    assert!(stderr(&waiting).contains("--answer VALUE: small, 12"), "{}", stderr(&waiting));
    let refused = run(&["--answer", "large"]);
    let told = "the resume value for channel `size` must be one of \"small\", 12, but is a text of 5 characters";
    assert!(code(&refused) == 2 && stderr(&refused).contains(told), "{}", stderr(&refused));
    assert_eq!(code(&run(&["--answer", "12"])), 1);
    // A text of digits stays a text, with the file and without it.
    bench.text(&["answer", "ask", "12"]);
    assert_eq!(code(&run(&[])), 1);
    let refused = bench.annals(&["answer", "ask", "perhaps"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("true or false"), "{}", stderr(&refused));
    let refused = run(&["--answer", "1e400"]);
    assert!(stderr(&refused).contains("--answer: the number 1e400 is larger than"), "{}", stderr(&refused));
    assert_eq!(bench.json(&["pending"])["pending"].as_array().unwrap().len(), 1, "the interrupt stays open");
    let done = run(&["--answer", "yes", "--json"]);
    assert_eq!(lines(&done).1["state"], json!({ "size": 12, "tag": "12", "ok": true }));
}

#[test]
fn the_lines_of_a_list_name_their_items() {
    let bench = Bench::new();
    let text = "channels = { hosts = 'last', out = 'last' }\ninput = { hosts = ['a', { name = 'b' }] }\n\
                [nodes.ping]\neach = 'hosts'\nrun = 'true'\ninto = 'out'\n";
    fs::write(bench.path("list.toml"), text).unwrap();
    let shown = bench.text(&["run", "list.toml"]);
    for line in ["started   ping", "started   ping  a", "finished  ping  {\"name\":\"b\"}", "finished  ping"] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let (events, _) = lines(&bench.annals(&["run", "list.toml", "--thread", "other", "--json"]));
    let items: Vec<&Json> = events.iter().map(|event| &event["item"]).collect();
    assert!(items.contains(&&json!({ "name": "b" })) && items.contains(&&Json::Null), "{items:?}");
}
