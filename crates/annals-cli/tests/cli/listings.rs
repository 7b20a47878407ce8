//! The verbs that list what runs and waits, the trash, copies, transcripts, and the flags of the output.

use super::verbs::trip;
use super::*;

#[test]
fn steps_and_runs_tell_of_each_task_and_its_end() {
    let bench = Bench::new();
    bench.json(&["demo", "notes"]);
    let steps = bench.json(&["steps", "research:notes", "-n", "0"])["steps"].clone();
    let steps = steps.as_array().unwrap();
    let open: Vec<&Json> = steps.iter().filter(|step| step["state"] != "done").collect();
    assert!(open.len() == 1 && open[0]["state"] == "interrupted" && open[0]["ended_at"].is_null(), "{open:?}");
    assert!(steps.len() > 5 && steps.iter().skip(1).all(|step| step["seconds"].as_f64().unwrap() >= 0.0));
    let node = open[0]["node"].as_str().unwrap();
    assert!(bench.text(&["steps", "research:notes"]).contains(node));
    assert_eq!(bench.json(&["steps", "research:notes", "-n", "1"])["more"], true);
    let reads = steps.iter().filter(|step| step["node"] == "read").count();
    let sums = bench.json(&["stats", "--by", "node"])["sums"].clone();
    let read = sums.as_array().unwrap().iter().find(|sum| sum["key"] == "read").unwrap().clone();
    assert_eq!((read["count"].as_u64(), read["seconds"].is_number()), (Some(reads as u64), true));

    let runs = bench.json(&["runs"])["runs"].clone();
    assert_eq!((runs.as_array().unwrap().len(), &runs[0]["status"]), (1, &json!("interrupted")));
    let pending = bench.json(&["pending"])["pending"].clone();
    assert_eq!((&pending[0]["kind"], &pending[0]["node"]), (&json!("interrupt"), &json!(node)));
    assert_eq!(pending[0]["question"], bench.json(&["threads"])["threads"][0]["questions"][0]);
    assert_eq!(pending[0]["interrupt"].as_str().map(str::len), Some(32), "the id for `annals answer --id`");

    bench.json(&["demo", "--yes"]);
    let runs = bench.json(&["runs", "research:notes"])["runs"].clone();
    assert_eq!((&runs[0]["status"], &runs[1]["status"]), (&json!("done"), &json!("continued")));
    let count = |words: &[&str]| bench.json(&[&["runs"], words].concat())["runs"].as_array().unwrap().len();
    assert_eq!((count(&[]), count(&["--since", "1h"]), count(&["--status", "done"])), (4, 4, 2));
    for none in [["--status", "failed"], ["--since", "2099-01-01"], ["--graph", "no such graph"]] {
        assert_eq!(code(&bench.annals(&[&["runs"], &none[..]].concat())), 1, "{none:?}");
    }
    assert_eq!(code(&bench.annals(&["pending"])), 1, "nothing waits");
    assert_eq!(code(&bench.annals(&["steps", "nobody"])), 3);
}

#[test]
fn pending_names_timers_and_failures() {
    let bench = Bench::new();
    let store = annals::store::Store::open(bench.path("store.db")).unwrap();
    let schema = annals::state::DynSchema::new().last("n").build();
    let fails = StateGraph::with_schema(schema)
        .node("fails", |_: &DynState| -> NodeResult<()> { Err("no train".into()) })
        .edge(START, "fails")
        .compile()
        .unwrap();
    assert!(fails.invoke(&store.thread("trip").unwrap(), DynUpdate::new().set("n", 1)).is_err());
    drop(store);
    let pending = bench.json(&["pending"])["pending"].clone();
    assert_eq!((&pending[0]["kind"], &pending[0]["node"]), (&json!("failed"), &json!("fails")));
    assert!(pending[0]["error"].as_str().unwrap().contains("no train"), "{pending}");
    let step = bench.json(&["steps", "trip"])["steps"][0].clone();
    assert!(step["state"] == "failed" && step["error"].as_str().unwrap().contains("no train"), "{step}");
}

#[test]
fn pending_leaves_out_an_interrupt_that_has_a_resume_value() {
    let bench = Bench::new();
    let store = annals::store::Store::open(bench.path("store.db")).unwrap();
    let ask = |text: &'static str| {
        move |_: &DynState, context: &Context| -> NodeResult<()> {
            context.interrupt(text).map(|_| ()).map_err(Into::into)
        }
    };
    let schema = annals::state::DynSchema::new().last("n").build();
    let graph = StateGraph::with_schema(schema).node("first", ask("first?")).node("second", ask("second?"));
    let graph = graph.edge(START, "first").edge(START, "second").compile().unwrap();
    let questions = || {
        let pending = bench.json(&["pending"])["pending"].clone();
        let rows = pending.as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["kind"].as_str().unwrap(), row["question"])).collect::<Vec<_>>()
    };
    let thread = store.thread("trip").unwrap();
    graph.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    assert_eq!(questions(), ["interrupt \"first?\"", "interrupt \"second?\""]);
    let give = || thread.resume_interrupt(&thread.open_interrupts().unwrap()[0].id, 3).unwrap();
    give();
    assert_eq!(questions(), ["interrupt \"second?\""]);
    give();
    assert_eq!(code(&bench.annals(&["pending"])), 1, "nothing waits");
}

#[test]
fn tree_shows_branches_and_forks_below_their_threads() {
    let bench = trip();
    bench.json(&["fork", "trip~1", "--name", "by train"]);
    bench.json(&["fork", "by train", "--name", "by night train"]);
    bench.json(&["branch", "trip", "main"]);
    let threads = bench.json(&["tree", "trip"])["threads"].clone();
    let rows: Vec<(&str, u64)> = threads
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["thread"].as_str().unwrap(), row["depth"].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [("trip", 0), ("by train", 1), ("by night train", 2)]);
    assert_eq!(threads[1]["forked_from"]["thread"], "trip");
    assert_eq!(threads[0]["branches"][0]["name"], "main");
    let text = bench.text(&["tree", "trip"]);
    assert!(text.lines().nth(2).unwrap().starts_with("    by night train"), "{text}");
    assert_eq!(bench.json(&["tree", "trip", "-n", "1"])["more"], true);
}

#[test]
fn a_copy_is_a_thread_of_its_own_and_rm_moves_it_to_the_trash() {
    let bench = trip();
    bench.json(&["copy", "trip", "again"]);
    assert_eq!(code(&bench.annals(&["copy", "trip", "again"])), 5, "the id is taken");
    assert_eq!(bench.json(&["show", "again", "plan.city"])["value"], "Oslo");

    let refused = bench.annals(&["rm", "again"]);
    assert!(code(&refused) == 7 && stderr(&refused).contains("--yes"), "{refused:?}");
    assert_eq!(code(&bench.annals(&["rm", "again", "--no-input"])), 7);
    let trashed = bench.json(&["rm", "again", "--yes"]);
    assert_eq!((&trashed["state"], trashed["until"].is_string()), (&json!("trashed"), true));
    let listed = |bench: &Bench| bench.json(&["threads"])["threads"].as_array().unwrap().len();
    assert_eq!(listed(&bench), 1);
    bench.json(&["undo", "again"]);
    assert_eq!(listed(&bench), 2);
    assert_eq!(bench.json(&["rm", "again", "--now", "--yes"])["state"], "erased");
    assert_eq!(code(&bench.annals(&["show", "again"])), 3);
}

#[test]
fn stats_sums_channels() {
    let bench = trip();
    let channels = bench.json(&["stats", "--by", "channel"])["sums"].clone();
    assert_eq!((&channels[0]["key"], &channels[0]["count"]), (&json!("messages"), &json!(3)));
    assert!(channels[0]["bytes"].as_u64().unwrap() > 0 && channels[1]["key"] == "plan");
    let csv = bench.text(&["stats", "--by", "channel", "--csv"]);
    assert!(csv.starts_with("channel,count,") && csv.lines().nth(1).unwrap().starts_with("messages,3,"), "{csv}");
    assert_eq!(code(&bench.annals(&["stats", "--by", "model"])), 1, "no model call is stored");
}

#[test]
fn a_transcript_escapes_every_text_and_loads_nothing() {
    let bench = trip();
    bench.json(&["update", "trip", "--say", "<script src=\"https://evil.example/x\"></script> & <b>"]);
    let page = bench.text(&["export", "trip", "--format", "html"]);
    assert!(page.starts_with("<!doctype html>") && page.contains("default-src &#39;none&#39;"), "{page}");
    assert!(page.contains("&lt;script src=") && !page.contains("<script") && !page.contains("<b>"), "{page}");
    assert_eq!(page.matches("<li class=\"msg").count(), 4);
    assert!(page.contains("<h1 dir=\"auto\">") && !page.contains("href="), "nothing leads out of it: {page}");
    let text = bench.text(&["export", "trip~1", "--format", "markdown"]);
    assert!(text.starts_with("# trip\n") && text.contains("## human\n\nA hotel in Bern\n"), "{text}");
    bench.text(&["export", "trip", "--format", "html", "--out", "trip.html"]);
    assert_eq!(fs::read_to_string(bench.path("trip.html")).unwrap(), page);
    assert_eq!(code(&bench.annals(&["export", "trip", "--format", "html", "--out", "trip.html"])), 5);
    let lines = bench.text(&["export", "trip", "--format", "jsonl"]);
    assert!(lines.lines().count() == 4 && lines.lines().all(|line| serde_json::from_str::<Json>(line).is_ok()));
    assert_eq!(bench.text(&["export", "trip", "--format", "json"]), bench.text(&["export", "trip"]));
}

#[test]
fn doctor_reports_a_store_and_what_is_not_one() {
    let bench = trip();
    let report = bench.json(&["doctor"]);
    assert_eq!((&report["file"], &report["opens_to_read"]), (&json!("store.db"), &json!(true)));
    assert_eq!((&report["check"]["threads"], &report["check"]["problems"]), (&json!(1), &json!(0)));
    assert!(report["format"] == 1 && report["sqlite"].as_str().unwrap().starts_with("3."));
    let text = bench.text(&["doctor"]);
    assert!(!text.contains(bench.folder.path().to_str().unwrap()) && !text.contains("Oslo"), "{text}");

    fs::write(bench.path("other.db"), "no database").unwrap();
    let other = bench.annals_on("other.db", &["doctor", "--json"]);
    assert_eq!((code(&other), &document(&other.stdout)["opens_to_read"]), (4, &json!(false)), "{other:?}");
    assert_eq!(code(&bench.annals_on("none.db", &["doctor"])), 3);
}

#[test]
fn colours_notes_and_questions_are_chosen() {
    let bench = trip();
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command
            .args(arguments)
            .arg("--store")
            .arg(bench.path("store.db"))
            .env_remove("NO_COLOR")
            .envs(variables.to_vec());
        command.stdin(Stdio::null()).output().unwrap()
    };
    let has_colours =
        |variables: &[(&str, &str)], arguments: &[&str]| with(variables, arguments).stdout.contains(&0x1b);
    assert!(!has_colours(&[], &["log", "trip"]));
    assert!(has_colours(&[], &["log", "trip", "--color", "always"]));
    assert!(has_colours(&[("CLICOLOR_FORCE", "1")], &["log", "trip"]));
    assert!(!has_colours(&[("CLICOLOR_FORCE", "0")], &["log", "trip"]));
    assert!(!has_colours(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &["log", "trip"]));
    assert!(!has_colours(&[("CLICOLOR_FORCE", "1")], &["log", "trip", "--color", "never"]));

    let noted = |arguments: &[&str]| stderr(&with(&[], arguments));
    assert!(!noted(&["fork", "trip", "--name", "a"]).is_empty());
    assert!(noted(&["fork", "trip", "--name", "b", "--quiet"]).is_empty());
    assert!(noted(&["show", "nobody", "-q"]).contains("nobody"), "errors are not notes");
    assert!(noted(&["shew", "-q"]).contains("shew"));
    // Without a terminal no pager is started.
    assert_eq!(code(&with(&[("PAGER", "false")], &["log", "trip"])), 0);
}

#[test]
fn stats_shows_sizes() {
    let bench = Bench::ran();
    let stats = bench.json(&["stats"]);
    assert_eq!(stats["file_bytes"], json!(fs::metadata(bench.path("store.db")).unwrap().len()));
    assert_eq!((&stats["wal_bytes"], &stats["erasing"]), (&json!(0), &json!(0)));
    let report = bench.json(&["doctor"]);
    assert_eq!((&stats["format"], &stats["page_bytes"]), (&report["format"], &report["page_bytes"]));
    let text = bench.text(&["stats"]);
    assert!(text.starts_with("file ") && text.contains("0 of 0 frames copied"), "{text}");
    assert_eq!(code(&bench.annals_on("none.db", &["stats"])), 3);
}

/// The first command on a store was killed before its first commit: the file is there and empty.
#[test]
fn an_empty_file_becomes_a_store_by_the_next_command_that_makes_one() {
    let bench = Bench::new();
    fs::write(bench.path("chat.jsonl"), "{\"role\": \"user\", \"content\": \"hi\"}\n").unwrap();
    for arguments in [&["import", "chat.jsonl", "--name", "a", "--format", "openai"][..], &["import", "chat.jsonl"]] {
        fs::write(bench.path("store.db"), "").unwrap();
        let read = bench.annals(&["threads"]);
        assert_eq!(code(&read), 4, "{read:?}");
        assert!(stderr(&read).contains("ended before its first commit"), "{read:?}");
        assert_eq!(fs::metadata(bench.path("store.db")).unwrap().len(), 0, "a reader changes nothing");
        assert_eq!(code(&bench.annals(arguments)), 0, "{arguments:?}");
        assert_eq!(bench.json(&["threads"])["threads"].as_array().unwrap().len(), 1, "{arguments:?}");
        fs::remove_file(bench.path("store.db")).unwrap();
    }
}

/// A thread without tasks is not read to its begin for a listing of its tasks or runs.
#[test]
fn a_listing_that_finds_nothing_ends_after_a_thousand_checkpoints() {
    let bench = Bench::new();
    let (notes, graph) = notes(&bench);
    graph.invoke(&notes, Noted::update().n(0)).unwrap();
    for n in 0..1_100 {
        notes.set("n", n).unwrap();
    }
    drop(notes);
    let few = bench.annals(&["steps", "notes"]);
    assert!(code(&few) == 1 && stderr(&few).contains("the newest 1,000 checkpoints have no task"), "{few:?}");
    let found = bench.annals(&["steps", "notes", "--json"]);
    assert_eq!((code(&found), document(&found.stdout)["more"].clone()), (1, json!(true)));
    for arguments in [&["runs"][..], &["runs", "notes"]] {
        let few = bench.annals(arguments);
        assert!(code(&few) == 1 && stderr(&few).contains("none of the newest 1,000 operations"), "{few:?}");
        let all = bench.json(&[arguments, &["-n", "0"]].concat());
        assert_eq!((all["runs"].as_array().unwrap().len(), &all["more"]), (1, &json!(false)));
    }
    let all = bench.json(&["steps", "notes", "-n", "0"]);
    assert_eq!((all["steps"].as_array().unwrap().len(), &all["more"]), (1, &json!(false)));
}

#[derive(State, Clone, Default)]
struct Noted {
    n: i64,
}

/// A thread in a new store, and a graph of one node.
fn notes(bench: &Bench) -> (Thread, CompiledGraph<Noted>) {
    let notes = Store::open(bench.path("store.db")).unwrap().thread("notes").unwrap();
    let graph = StateGraph::<Noted>::new()
        .node("note", |noted: &Noted| Ok(Noted::update().n(noted.n + 1)))
        .edge(START, "note")
        .compile()
        .unwrap();
    (notes, graph)
}

/// An input and the start of its graph are one row, also where a page ends.
#[test]
fn the_pages_of_a_log_are_one_log() {
    let bench = Bench::new();
    let (notes, graph) = notes(&bench);
    for n in 0..100 {
        graph.invoke(&notes, Noted::update().n(n)).unwrap();
        if n % 17 == 16 {
            notes.rewind_to(&notes.at("~21").unwrap()).unwrap();
        }
    }
    drop(notes);
    let all = bench.json(&["log", "notes", "-n", "0"])["checkpoints"].clone();
    let all = all.as_array().unwrap();
    let lines = bench.annals(&["log", "notes", "-n", "0", "--jsonl"]);
    assert_eq!(String::from_utf8_lossy(&lines.stdout).lines().count(), all.len());
    let inputs = all.iter().filter(|row| row["source"] == "input").count();
    let text = bench.text(&["log", "notes", "-n", "0"]);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("step ")).collect();
    assert_eq!((inputs, rows.len()), (100, all.len() - inputs), "{text}");
    assert_eq!(rows.iter().filter(|row| row.contains("(input)")).count(), inputs, "{text}");
    let mut shorts: Vec<&str> =
        rows.iter().map(|row| row.split_whitespace().find(|word| word.len() >= 4).unwrap()).collect();
    for short in &shorts {
        assert!(all.iter().any(|row| row["short"] == **short), "{short}");
    }
    shorts.sort_unstable();
    shorts.dedup();
    assert_eq!(shorts.len(), rows.len());
    let filtered = bench.json(&["log", "notes", "-n", "0", "--node", "note"])["checkpoints"].as_array().unwrap().len();
    for arguments in [&["--graph"][..], &[]] {
        let text = bench.text(&[&["log", "notes", "-n", "0", "--node", "note"], arguments].concat());
        assert_eq!((filtered, text.lines().filter(|line| line.contains("step ")).count()), (100, 100), "{text}");
    }
}

/// A row of the log that is lost makes the count of its thread an error, so a listing that succeeds has not counted.
#[test]
fn a_listing_counts_checkpoints_only_if_it_is_asked_to() {
    let bench = trip();
    let sizes = |document: Json| {
        let row = &document["threads"][0];
        (row["checkpoints"].clone(), row["branches"].clone())
    };
    assert_eq!(sizes(bench.json(&["threads", "--count"])), (json!(4), json!(1)));
    assert!(bench.text(&["threads", "--count"]).contains("CHECKPOINTS  BRANCHES"));
    assert_eq!(sizes(bench.json(&["threads"])), (Json::Null, Json::Null));
    let text = bench.text(&["threads"]);
    assert!(text.starts_with("THREAD  HEAD") && text.lines().count() == 2, "{text}");
}

/// The mailbox of a thread is a namespace of its own, and is not counted.
#[test]
fn a_signal_is_not_counted_as_a_checkpoint_or_a_branch() {
    let bench = Bench::new();
    bench.text(&["demo", "notes", "--yes"]);
    let size = || {
        let row = bench.json(&["threads", "--count"])["threads"][0].clone();
        (row["checkpoints"].clone(), row["branches"].clone())
    };
    let before = size();
    bench.text(&["signal", "research:notes", "paid", "1"]);
    bench.text(&["signal", "research:notes", "paid", "2"]);
    assert_eq!(size(), before);
}
