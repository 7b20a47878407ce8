//! The outputs of commands, a rerun beside its original, a list of rows that is killed, and scheduled runs of a worker.

use std::io::{BufRead as _, BufReader};

use super::flows::lines;
use super::work::{end, lines_of, status, until, worker};
use super::*;

const BUILD: &str = "name = 'build'\nchannels = { made = 'last', model = 'last', text = 'last', size = 'last' }\n\
    input = { model = 'large' }\n[nodes.make]\nrun = 'echo compiling; echo warning >&2'\ninto = 'made'\n[nodes.ask]\nafter = 'make'\n\
    env = { MODEL = '=model' }\nrun = 'echo \"by $MODEL\"'\ninto = 'text'\n[nodes.measure]\nafter = 'ask'\n\
    set = { size = '= len(text)' }\n";

fn bench(name: &str, flow: &str) -> Bench {
    let bench = Bench::new();
    fs::write(bench.path(name), flow).unwrap();
    bench
}

fn rerun(bench: &Bench, arguments: &[&str]) -> Output {
    bench.annals(&[&["rerun", "build~1", "build.toml"][..], arguments].concat())
}

/// A document of `logs`, and the last one of `rerun`.
pub(crate) fn documents() -> (Json, Json) {
    let bench = bench("build.toml", BUILD);
    assert_eq!(code(&bench.annals(&["run", "build.toml"])), 0);
    let compared = bench.annals(&["rerun", "build@{step:1}", "build.toml", "--set", "model=small", "--json"]);
    (bench.json(&["logs", "build"]), lines(&compared).1)
}

#[test]
fn the_outputs_of_a_thread_are_shown_by_node() {
    let bench = bench("build.toml", BUILD);
    assert_eq!(code(&bench.annals(&["run", "build.toml"])), 0);
    let all = bench.annals(&["logs", "build"]);
    let shown = String::from_utf8(all.stdout.clone()).unwrap();
    let begins: Vec<&str> = shown.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(begins, ["== make", "compiling", "! warning", "== ask", "by large"], "{shown}");
    let one = bench.json(&["logs", "build", "ask"]);
    let log = &one["logs"][0];
    assert_eq!((&log["stdout"], &log["exit"], &log["state"]), (&json!("by large\n"), &json!(0), &json!("done")));
    let newest = bench.json(&["logs", "build", "-n", "1"]);
    assert_eq!((&newest["logs"][0]["node"], &newest["more"]), (&json!("ask"), &json!(true)));
    let none = bench.annals(&["logs", "build", "measure"]);
    assert!(code(&none) == 1 && stderr(&none).contains("no command of node measure"), "{none:?}");
    assert_eq!(code(&bench.annals(&["logs", "build", "-f", "--json"])), 2);
}

/// The command waits for the file that the test writes when the follower has printed the beginning of its output.
#[test]
fn an_output_is_followed_until_the_run_has_ended() {
    let flow = "name = 'slow'\nchannels = { a = 'last' }\n[nodes.a]\ninto = 'a'\nrun = 'echo begun; until [ -e go ]; do sleep 0.05; done; echo ended'\n";
    let bench = bench("slow.toml", flow);
    bench.json(&["enqueue", "slow.toml", "--thread", "s"]);
    let worker = worker(&bench, &["slow.toml"]);
    let mut follower = Command::new(env!("CARGO_BIN_EXE_annals"))
        .args(["logs", "s", "a", "-f", "--store", "store.db"])
        .current_dir(bench.folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(printed.next().unwrap().starts_with("== a  step 1  running"));
    assert_eq!(printed.next().unwrap(), "begun");
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(printed.collect::<Vec<_>>(), ["ended"]);
    assert!(follower.wait().unwrap().success());
    assert_eq!(code(&end(worker, "-TERM")), 0);
}

#[test]
fn a_rerun_stands_beside_its_original() {
    let bench = bench("build.toml", BUILD);
    assert_eq!(code(&bench.annals(&["run", "build.toml"])), 0);
    let done = rerun(&bench, &["--set", "text=by hand"]);
    let shown = String::from_utf8(done.stdout.clone()).unwrap();
    let row = |channel: &str| shown.lines().find(|line| line.starts_with(channel)).unwrap_or_default().to_owned();
    let words = |line: String| line.split("  ").map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    let (size, text): (Vec<String>, Vec<String>) = (words(row("size")), words(row("text")));
    assert_eq!(code(&done), 0, "{done:?}");
    assert!(shown.contains("finished  measure") && !shown.contains("make"), "{shown}");
    assert_eq!(
        (size, text),
        (vec!["size".into(), "8".into(), "7".into()], vec!["text".into(), "\"by large\"".into(), "\"by hand\"".into()])
    );
    assert_eq!(bench.json(&["show", "build", "text"])["value"], "by large", "the original stays");
    let second = rerun(&bench, &["--json"]);
    let compared = lines(&second).1;
    assert_eq!((&compared["thread"], &compared["channels"]), (&json!("build-rerun-2"), &json!([])), "{compared}");
    let refused = rerun(&bench, &["--set", "nope.x=1"]);
    assert_ne!(code(&refused), 0, "{refused:?}");
    assert!(!bench.text(&["threads"]).contains("build-rerun-3"), "a value that is refused leaves no fork");
    let named = rerun(&bench, &["--name", "build"]);
    assert!(code(&named) == 5 && stderr(&named).contains("exists already"), "{named:?}");
    let ended = bench.annals(&["rerun", "build", "build.toml"]);
    assert!(code(&ended) == 2 && stderr(&ended).contains("no task is due"), "{ended:?}");
}

/// Rows with a workflow for each and an approval at the end, killed with -9 in the middle.
#[test]
fn rows_that_are_killed_go_on_and_keep_their_outputs() {
    const ROWS: usize = 12;
    let row = "channels = { item = 'last', sum = 'last' }\noutputs = { sum = '= sum' }\n[nodes.load]\n\
               env = { ROW = '= str(item)' }\nrun = 'echo \"$ROW\" >> loaded; [ \"$ROW\" != 7 ] || [ -e go ] || sleep 60; \
               echo \"row $ROW\" >&2; echo $((ROW * 2))'\ninto = 'sum'\nformat = 'json'\n";
    let rows = "name = 'rows'\nchannels = { rows = 'last', sums = 'last', sure = 'last' }\n[nodes.list]\n\
                run = 'seq 1 12'\ninto = 'rows'\nformat = 'lines'\n[nodes.each]\nafter = 'list'\neach = 'rows'\n\
                workflow = 'row.toml'\ninto = 'sums'\n[nodes.approve]\nafter = 'each'\n\
                ask = \"= 'Load ' + str(len(sums)) + ' rows?'\"\nanswer = 'boolean'\ninto = 'sure'\n";
    let bench = bench("rows.toml", rows);
    fs::write(bench.path("row.toml"), row).unwrap();
    bench.json(&["enqueue", "rows.toml", "--thread", "rows"]);
    let killed = worker(&bench, &["rows.toml"]);
    until("the seventh row", || lines_of(&bench.path("loaded")).len() == 7);
    let killed = end(killed, "-KILL");
    assert_eq!(killed.status.code(), None, "{killed:?}");
    fs::write(bench.path("go"), "").unwrap();
    let waiting = bench.annals(&["work", "rows.toml", "--once"]);
    assert_eq!((code(&waiting), status(&bench, "rows")), (0, json!("interrupted")), "{waiting:?}");
    let mut loaded = lines_of(&bench.path("loaded"));
    loaded.retain(|row| row != "7");
    assert_eq!(loaded.len(), ROWS - 1, "no other row is loaded twice: {loaded:?}");
    bench.json(&["answer", "rows", "true"]);
    assert_eq!(code(&bench.annals(&["work", "rows.toml", "--once"])), 0);
    let sums: Vec<Json> = (1..=ROWS).map(|row| json!({ "sum": row * 2 })).collect();
    assert_eq!(bench.json(&["show", "rows", "sums"])["value"], json!(sums));
    let logs = bench.json(&["logs", "rows", "each/load"]);
    let errors: Vec<&str> =
        logs["logs"].as_array().unwrap().iter().map(|log| log["stderr"].as_str().unwrap()).collect();
    assert_eq!(errors.len(), ROWS, "{logs}");
    assert!((1..=ROWS).all(|row| errors.contains(&format!("row {row}\n").as_str())), "{errors:?}");
    assert_eq!(code(&bench.annals(&["check"])), 0);
}

#[test]
fn a_worker_runs_a_workflow_at_its_times() {
    let flow = "name = 'beat'\nschedule = { every = '1s' }\ninput = { n = 3 }\nchannels = { n = 'sum' }\n[nodes.a]\n\
                run = 'echo \"$ANNALS_THREAD\" >> ran'\n";
    let bench = bench("beat.toml", flow);
    let worker = worker(&bench, &["beat.toml"]);
    until("two runs", || lines_of(&bench.path("ran")).len() >= 2);
    let ended = end(worker, "-TERM");
    assert!(code(&ended) == 0 && stderr(&ended).contains("beat is due at "), "{ended:?}");
    let ran = lines_of(&bench.path("ran"));
    // The command of a run may come to its line after that of the next one.
    assert!(ran.iter().all(|thread| thread.starts_with("beat/20")) && ran[0] != ran[1], "{ran:?}");
    assert_eq!(bench.json(&["show", &format!("\"{}\"", ran[0]), "n"])["value"], 3);
}
