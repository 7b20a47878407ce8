//! The verbs that look into a history and move its head.

use std::io::{BufRead as _, BufReader, Read as _};

use super::*;

/// A bench with a thread of four updates: a plan that changes, and messages.
pub(super) fn trip() -> Bench {
    let bench = Bench::new();
    annals::store::Store::open(bench.path("store.db")).unwrap();
    let update = |arguments: &[&str]| bench.json(&[&["update", "trip"], arguments].concat());
    update(&["--create", "--set", r#"plan={"city":"Bern","days":[1,2]}"#, "--say", "A hotel in Bern"]);
    update(&["--append", r#"messages={"type":"ai","content":"The Gasthof Adler","id":"m2"}"#]);
    update(&["--set", r#"plan={"city":"Oslo","days":[1,2]}"#]);
    update(&["--set", r#"plan={"city":"Oslo","days":[1,3]}"#, "--say", "By train"]);
    bench
}

#[test]
fn update_writes_one_checkpoint_for_all_channels() {
    let bench = trip();
    let log = bench.json(&["log", "trip"]);
    let rows = log["checkpoints"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let mut changed: Vec<&str> =
        rows[0]["changed"].as_array().unwrap().iter().map(|row| row["channel"].as_str().unwrap()).collect();
    changed.sort_unstable();
    assert_eq!(changed, ["messages", "plan"]);

    let missing = bench.annals(&["update", "trap", "--say", "hello"]);
    assert!(code(&missing) == 3 && stderr(&missing).contains("did you mean trip?"), "{missing:?}");
    assert_eq!(code(&bench.annals(&["update", "trip"])), 2, "nothing to write");
    assert_eq!(code(&bench.annals(&["update", "trip", "--set", "=1"])), 2, "no channel");
    let late = bench.annals(&["update", "trip", "--set", "plan=1", "--on-head", "~1"]);
    assert!(code(&late) == 5 && stderr(&late).contains("trip"), "{late:?}");
    assert_eq!(bench.json(&["log", "trip"])["head"], log["head"], "nothing was written");
}

#[test]
fn blame_names_the_writer_of_channels_items_and_parts() {
    let bench = trip();
    let written = |path: &[&str]| bench.json(&[&["blame", "trip"], path].concat())["written"].clone();
    let steps = |written: &Json| -> Vec<i64> {
        written.as_array().unwrap().iter().map(|row| row["by"]["step"].as_i64().unwrap()).collect()
    };
    assert_eq!(written(&[]).as_array().unwrap().len(), 2);
    let items = written(&["messages"]);
    assert_eq!((steps(&items), &items[1]["id"]), (vec![0, 1, 3], &json!("m2")));
    assert_eq!(steps(&written(&["messages", "-n", "1"])), [3]);
    let part = |path: &str| (written(&[path])[0]["value"].clone(), steps(&written(&[path])));
    assert_eq!(part("plan.city"), (json!("Oslo"), vec![2]));
    assert_eq!(part("plan.days[0]"), (json!(1), vec![0]));
    assert_eq!(part("messages#m2.content"), (json!("The Gasthof Adler"), vec![1]));

    let text = bench.text(&["blame", "trip", "messages"]);
    assert!(text.lines().count() == 3 && text.contains("The Gasthof Adler"), "{text}");
    assert_eq!(code(&bench.annals(&["blame", "trip", "plan.nothing"])), 3);
    assert_eq!(code(&bench.annals(&["blame", "trip", "plan["])), 2);
    assert_eq!(bench.json(&["show", "trip", "plan.city"])["value"], "Oslo");
    assert_eq!(bench.text(&["show", "trip~2", "plan.city"]), "Bern\n");
}

#[test]
fn evolution_lists_each_value_once() {
    let bench = trip();
    let values = |arguments: &[&str]| -> (Vec<Json>, Vec<i64>) {
        let found = bench.json(&[&["evolution", "trip"], arguments].concat());
        let versions = found["versions"].as_array().unwrap();
        let values = versions.iter().map(|version| version["value"].clone()).collect();
        (values, versions.iter().map(|version| version["by"]["step"].as_i64().unwrap()).collect())
    };
    assert_eq!(values(&["plan.city"]), (vec![json!("Oslo"), json!("Bern")], vec![2, 0]));
    assert_eq!(values(&["plan.days[1]"]), (vec![json!(3), json!(2)], vec![3, 0]));
    assert_eq!(values(&["plan", "-n", "2"]).1, [3, 2]);
    assert_eq!(bench.json(&["evolution", "trip", "plan", "-n", "2"])["more"], true);
    assert_eq!(values(&["messages#m2.content"]).1, [1]);
    assert!(bench.text(&["evolution", "trip", "plan.city"]).contains("\"Bern\""));
}

#[test]
fn search_finds_messages_of_all_threads() {
    let bench = trip();
    let hit = bench.json(&["search", "gasthof"])["hits"][0].clone();
    assert_eq!((&hit["thread"], &hit["role"], &hit["position"]), (&json!("trip"), &json!("ai"), &json!(1)));
    let text = bench.text(&["search", "hotel", "bern", "--role", "human", "--thread", "trip", "--since", "1h"]);
    assert!(text.starts_with("trip@") && text.contains("A hotel in Bern"), "{text}");
    let first = bench.json(&["search", "a", "-n", "1"]);
    let next = first["next"].as_str().unwrap();
    let second = bench.json(&["search", "a", "-n", "1", "--after", next]);
    assert_ne!(first["hits"], second["hits"]);

    assert_eq!(code(&bench.annals(&["search", "zebra"])), 1);
    assert_eq!(code(&bench.annals(&["search", "x", "--thread", "nobody"])), 3);
    assert_eq!(code(&bench.annals(&["search", "x", "--since", "soon"])), 2);
    assert_eq!(code(&bench.annals(&["search", "x", "-n", "5000"])), 2, "the limit is named by the library");
}

#[test]
fn log_filters_and_finds_a_text_on_every_branch() {
    let bench = trip();
    bench.json(&["rewind", "trip~2"]);
    bench.json(&["update", "trip", "--set", "plan=\"Rome\""]);
    let changes = bench.json(&["log", "trip", "-S", "Oslo"])["changes"].clone();
    assert_eq!((changes.as_array().unwrap().len(), &changes[0]["appears"]), (1, &json!(true)), "an abandoned branch");
    assert_eq!(code(&bench.annals(&["log", "trip", "-S", "Madrid"])), 1);
    let with = |arguments: &[&str]| bench.json(&[&["log", "trip"], arguments].concat())["checkpoints"].clone();
    assert_eq!(with(&["--channel", "messages"]).as_array().unwrap().len(), 3);
    assert_eq!(with(&["--since", "1h"]).as_array().unwrap().len(), 5);
    let one = bench.text(&["log", "trip", "--channel", "messages", "-n", "1"]);
    assert!(one.lines().count() == 2 && one.contains("older ones"), "{one}");
    let none = bench.annals(&["log", "trip", "--node", "nobody"]);
    assert!(code(&none) == 1 && stderr(&none).contains("no checkpoint"), "{none:?}");

    let ran = Bench::ran();
    let rows = ran.json(&["log", "research:notes", "--node", "read"])["checkpoints"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 1);
}

#[test]
fn the_head_moves_and_every_move_is_undone() {
    let bench = trip();
    let city = || bench.json(&["show", "trip", "plan.city"])["value"].clone();
    let moved = bench.json(&["rewind", "trip~3"]);
    assert_eq!((&moved["operation"]["operation"], city()), (&json!("rewind"), json!("Bern")));
    bench.json(&["undo", "trip"]);
    assert_eq!(city(), "Oslo");
    bench.json(&["redo", "trip"]);
    assert_eq!(city(), "Bern");

    bench.json(&["branch", "trip", "by bus"]);
    bench.json(&["update", "trip", "--set", r#"plan={"city":"Rome"}"#]);
    bench.json(&["branch", "trip", "by train", "--at", "~1"]);
    bench.json(&["switch", "trip", "by train"]);
    assert_eq!(city(), "Bern");
    bench.json(&["switch", "trip", "by bus"]);
    assert_eq!(city(), "Rome");
    let branches = bench.json(&["branch", "trip", "--all"])["branches"].clone();
    let named = |name: &str| branches.as_array().unwrap().iter().find(|row| row["name"] == name).cloned();
    assert_eq!(named("by bus").unwrap()["current"], true);
    assert!(named("by train").is_some() && branches.as_array().unwrap().iter().any(|row| row["abandoned"] == true));
    assert!(bench.text(&["branch", "trip"]).starts_with("*  by bus"));
    bench.json(&["branch", "trip", "by train", "--remove"]);
    assert_eq!(code(&bench.annals(&["switch", "trip", "by train"])), 3);

    let operations = bench.json(&["operations", "trip", "-n", "0"])["operations"].clone();
    let names: Vec<&str> =
        operations.as_array().unwrap().iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(&names[names.len() - 7..], ["redo", "undo", "rewind", "update", "update", "update", "update"]);
    let text = bench.text(&["operations", "trip", "-n", "3"]);
    assert_eq!(text.lines().count(), 4, "{text}");
    bench.json(&["rewind", "trip~1"]);
    let log = bench.json(&["log", "trip"]);
    assert_eq!(log["head"], bench.json(&["show", "trip"])["checkpoint"], "the head is not the newest checkpoint");
    let rows = log["checkpoints"].as_array().unwrap();
    let short = rows.iter().find(|row| row["checkpoint"] == log["head"]).unwrap()["short"].as_str().unwrap();
    let text = bench.text(&["log", "trip"]);
    let marked: Vec<&str> = text.lines().filter(|line| line.contains('@')).collect();
    assert!(marked.len() == 1 && marked[0].contains(&short[..6]), "{text}");
    let same = bench.annals(&["rewind", "trip"]);
    assert!(code(&same) == 0 && stderr(&same).contains("there already"), "{same:?}");
}

#[test]
fn erase_asks_first_and_leaves_no_bytes() {
    let bench = trip();
    bench.json(&["update", "other", "--create", "--say", "hello"]);
    let asked = bench.annals(&["erase", "trip"]);
    assert!(code(&asked) == 7 && stderr(&asked).contains("1 thread with 4 checkpoints"), "{asked:?}");
    assert_eq!(bench.json(&["threads"])["threads"].as_array().unwrap().len(), 2);
    assert_eq!(bench.json(&["erase", "trip", "--yes"])["state"], "erased");
    assert_eq!(bench.json(&["threads"])["threads"].as_array().unwrap().len(), 1);
    let bytes: Vec<u8> = bench.disk().into_values().flatten().collect();
    assert!(!bytes.windows(7).any(|window| window == b"Gasthof"));
    assert_eq!(code(&bench.annals(&["erase", "trip", "--yes"])), 3);
}

#[test]
fn prune_asks_first_and_keeps_the_state_of_the_head() {
    let bench = trip();
    let before = bench.json(&["show", "trip"]);
    let asked = bench.annals(&["prune", "trip", "--keep-last", "1"]);
    assert!(code(&asked) == 7 && stderr(&asked).contains("3 checkpoints of 1 thread"), "{asked:?}");
    assert_eq!(bench.json(&["prune", "--all", "--before", "1d", "--yes"])["checkpoints"], 0, "all are younger");
    let pruned = bench.json(&["prune", "trip", "--keep-last", "1", "--yes"]);
    assert_eq!(pruned["checkpoints"], 3);
    let after = bench.json(&["show", "trip"]);
    assert!(after["checkpoint"].is_string() && before["values"].is_object(), "{before}");
    assert_eq!((&after["checkpoint"], &after["values"]), (&before["checkpoint"], &before["values"]));
    assert!(after["parent"].is_null(), "it was pruned");
    assert!(bench.text(&["show", "trip"]).contains("Gasthof"));
    assert_eq!(bench.json(&["log", "trip"])["checkpoints"].as_array().unwrap().len(), 1);
    assert_eq!(code(&bench.annals(&["diff", "trip"])), 3, "a difference to a pruned state is refused");
    assert_eq!(bench.json(&["prune", "trip", "--keep-last", "1", "--yes"])["checkpoints"], 0);
    for wrong in
        [&["prune", "trip"][..], &["prune", "--keep-last", "1"], &["prune", "trip", "--all", "--keep-last", "1"]]
    {
        assert_eq!(code(&bench.annals(wrong)), 2, "{wrong:?}");
    }
    assert_eq!(code(&bench.annals(&["prune", "nobody", "--keep-last", "1"])), 3);
}

#[test]
fn bisect_finds_the_first_failure() {
    let bench = trip();
    let find = |point: &str, script: &str| {
        let store = bench.path("store.db");
        let store = store.to_str().unwrap();
        run(bench.folder.path(), &["bisect", point, "--json", "--store", store, "--", "sh", "-c", script])
    };
    let found = find("trip", "! grep -q Oslo");
    assert_eq!(code(&found), 0, "{found:?}");
    let found = document(&found.stdout);
    assert_eq!((&found["step"], found["tested"].as_u64().unwrap() <= 4), (&json!(2), true), "{found}");
    assert_eq!(document(&find("trip", "false").stdout)["step"], 0, "bad from the first checkpoint on");
    assert_eq!(code(&find("trip", "true")), 1, "no failure");
    assert_eq!(code(&find("trip", "kill -9 $$")), 1, "the search ends");
    let store = ["bisect", "trip", "--store", "store.db", "--"];
    let missing = run(bench.folder.path(), &[&store[..], &["no-such-command"]].concat());
    assert!(code(&missing) == 3 && stderr(&missing).contains("no-such-command"), "{missing:?}");
}

#[test]
fn tail_prints_the_newest_and_follows() {
    let bench = trip();
    assert_eq!(bench.text(&["tail"]).lines().count(), 4);
    assert_eq!(bench.text(&["tail", "trip", "-n", "2"]).lines().count(), 2);
    let mut follower = Command::new(env!("CARGO_BIN_EXE_annals"))
        .args(["tail", "-f", "-n", "0", "--json", "--store", "store.db"])
        .current_dir(bench.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // The follower may begin after an update: updates go on until it shows one.
    let (shown, showed) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let line = lines.next().unwrap().unwrap();
        shown.send(()).unwrap();
        line
    });
    let mut updates = 0;
    while showed.recv_timeout(std::time::Duration::from_millis(200)).is_err() {
        updates += 1;
        assert!(updates < 1_500, "the follower shows nothing");
        bench.json(&["update", "trip", "--say", &format!("again {updates}")]);
    }
    let line: Json = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert_eq!((&line["thread"], &line["changed"][0]["added"]), (&json!("trip"), &json!(1)));
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(bench.json(&["check"])["problems"], json!([]));
}

/// Waits for the end of a process, and returns its exit code.
fn ended(process: &mut std::process::Child) -> i32 {
    for _ in 0..3_000 {
        if let Some(status) = process.try_wait().unwrap() {
            return status.code().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    process.kill().unwrap();
    panic!("the process does not end");
}

#[test]
fn tail_ends_when_its_reader_is_gone_or_its_thread_deleted() {
    let bench = trip();
    let follow = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args(["tail", "-f", "--store", "store.db"]).args(arguments).current_dir(bench.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut without_reader = follow(&["-n", "0"]);
    drop(without_reader.stdout.take());
    #[cfg(unix)]
    assert_eq!(ended(&mut without_reader), 0);
    #[cfg(not(unix))]
    without_reader.kill().unwrap();

    let mut of_thread = follow(&["trip", "-n", "1"]);
    let mut line = String::new();
    BufReader::new(of_thread.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("trip@"), "{line}");
    assert_eq!(code(&bench.annals(&["erase", "trip", "--yes"])), 0);
    assert_eq!(ended(&mut of_thread), 0);
    let mut said = String::new();
    of_thread.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "the thread trip was deleted\n");
}

#[test]
fn sql_reads_the_views_and_writes_nothing() {
    let bench = trip();
    let query = "select kind, text from v_messages order by seq limit 2";
    let found = bench.json(&["sql", query]);
    assert_eq!(found["columns"], json!(["kind", "text"]));
    assert_eq!(found["rows"], json!([["human", "A hotel in Bern"], ["ai", "The Gasthof Adler"]]));
    assert_eq!(bench.text(&["sql", query]), "kind   text\nhuman  A hotel in Bern\nai     The Gasthof Adler\n");
    assert_eq!(bench.text(&["sql", "select 1 as a, 'x,\"y' as b, null as c", "--csv"]), "a,b,c\n1,\"x,\"\"y\",\n");
    assert_eq!(code(&bench.annals(&["sql", "select 1 where 0"])), 1, "no row");

    let before = bench.disk();
    for wrong in ["select * from nothing", "attach 'other.db' as o", "select 1; select 2", "selec"] {
        assert_eq!(code(&bench.annals(&["sql", wrong])), 2, "{wrong}");
    }
    for write in ["delete from name", "drop view v_messages", "pragma user_version = 7", "vacuum"] {
        let refused = bench.annals(&["sql", write]);
        assert!(matches!(code(&refused), 2 | 7), "{write}: {refused:?}");
    }
    assert_eq!(bench.disk(), before, "the file is as it was");
}

#[test]
fn sql_prints_rows_as_they_come_and_within_limits() {
    let bench = trip();
    // The layout of a document that is printed in parts is that of one that is printed as a whole.
    for query in ["select 1 as a, 'x\ny' as b union all select null, x'0102' order by 1 desc", "select 1 as a where 0"]
    {
        let printed = bench.annals(&["sql", query, "--json"]).stdout;
        let whole = format!("{:#}\n", document(&printed));
        assert_eq!(String::from_utf8(printed).unwrap(), whole);
    }
    let lines =
        String::from_utf8(bench.annals(&["sql", "select 1 as a union all select 2", "--jsonl"]).stdout).unwrap();
    assert_eq!(lines, "{\"schema\":1,\"a\":1}\n{\"schema\":1,\"a\":2}\n");
    for (refused, reason) in [
        ("", "the query is empty"),
        (" -- nothing\n;", "the query is empty"),
        ("select length(printf('%.*c', 900000000, 'x'))", "too big"),
        ("select hex(fts3_tokenizer('simple'))", "not authorized"),
    ] {
        let refused = bench.annals(&["sql", refused, "--json"]);
        let error = &document(&refused.stderr)["error"];
        assert_eq!((code(&refused), &error["code"]), (2, &json!("sql")), "{error}");
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    }
    let long = format!("select '{}'", "x".repeat(100_000));
    assert_eq!(code(&bench.annals(&["sql", &long])), 0);
}

#[test]
fn completions_and_manual_pages_name_every_verb() {
    let bench = Bench::new();
    let help = String::from_utf8(run(bench.folder.path(), &["--help"]).stdout).unwrap();
    let verbs: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() > 25, "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(run(bench.folder.path(), &["completions", shell]).stdout).unwrap();
        assert!(verbs.iter().all(|verb| script.contains(verb)), "{shell}");
    }
    let page = String::from_utf8(run(bench.folder.path(), &["man"]).stdout).unwrap();
    assert!(page.contains(".TH annals 1") && page.contains("Exit codes"), "{page}");
    assert_eq!(code(&run(bench.folder.path(), &["man", "--dir", "pages"])), 0);
    for verb in verbs {
        let page = fs::read_to_string(bench.path(&format!("pages/annals-{verb}.1"))).unwrap();
        assert!(page.contains(verb));
    }
}

#[test]
fn wide_characters_do_not_shift_a_row() {
    let bench = Bench::new();
    annals::store::Store::open(bench.path("store.db")).unwrap();
    bench.json(&["update", "\u{540d}\u{524d}", "--create", "--say", "hello"]);
    bench.json(&["update", "long-name", "--create", "--say", "hello"]);
    let text = bench.text(&["threads"]);
    let rows: Vec<&str> = text.lines().collect();
    let place = |row: &str| row.chars().position(|c| c == '1').unwrap();
    let wide = rows.iter().find(|row| row.starts_with('\u{540d}')).unwrap();
    let narrow = rows.iter().find(|row| row.starts_with("long")).unwrap();
    assert_eq!(place(wide) + 2, place(narrow), "two of its characters have two cells each:\n{text}");
}

#[test]
fn threads_are_listed_by_their_facts_and_status() {
    let bench = trip();
    bench.json(&["update", "other", "--create", "--say", "hello"]);
    let listed = |arguments: &[&str]| -> Vec<String> {
        let output = bench.annals(&[&["threads", "--json"], arguments].concat());
        let threads = document(&output.stdout)["threads"].clone();
        assert_eq!(code(&output), i32::from(threads == json!([])), "{output:?}");
        threads.as_array().unwrap().iter().map(|row| row["thread"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(&[]), ["other", "trip"]);
    bench.json(&["facts", "trip", "--title", "Bern in May", "--label", "travel", "--project", "home"]);
    assert_eq!(listed(&["--label", "travel"]), ["trip"]);
    assert_eq!(listed(&["--project", "home", "--title", "may", "--status", "done", "--since", "1h"]), ["trip"]);
    assert!(listed(&["--status", "failed"]).is_empty() && listed(&["--graph", "none"]).is_empty());
    assert!(bench.text(&["threads"]).contains("Bern in May"));
    let facts = bench.text(&["facts", "trip"]);
    assert!(facts.contains("title    Bern in May") && facts.contains("labels   travel"), "{facts}");

    bench.json(&["archive", "trip", "other"]);
    assert!(listed(&[]).is_empty());
    assert_eq!(listed(&["--archived", "-n", "1"]).len(), 1);
    bench.json(&["undo", "other"]);
    assert_eq!(listed(&[]), ["other", "trip"], "an operation on both is undone in both");
    bench.json(&["facts", "trip", "--title", "", "--remove-label", "travel", "--pin"]);
    let row = bench.json(&["facts", "trip"]);
    assert_eq!((&row["title"], &row["labels"], &row["pinned"]), (&Json::Null, &json!([]), &json!(true)));
    let wrong = bench.annals(&["threads", "--status", "lost"]);
    assert!(code(&wrong) == 2 && stderr(&wrong).contains("interrupted"), "{wrong:?}");
}

#[test]
fn a_text_is_found_below_its_checkpoints() {
    let bench = trip();
    bench.json(&["rewind", "trip~1"]);
    bench.json(&["update", "trip", "--set", "city=\"Bern\""]);
    let text = bench.text(&["log", "trip", "-S", "Bern", "--graph"]);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().filter(|word| word.len() < 12 && !word.contains("#")).collect::<Vec<_>>())
        .map(|words| words.join(" "))
        .collect();
    // The checkpoint of step 3 that was abandoned, and the one of step 1, do not have the text.
    assert_eq!(lines.len(), 7, "{text}");
    assert!(lines[0].starts_with("@") && lines[0].contains("step 3") && lines[1] == "| + city", "{text}");
    assert!(lines[2].starts_with("o") && lines[2].contains("step 2") && lines[3] == "| - plan", "{text}");
    assert!(lines[4].starts_with("o") && lines[4].contains("step 0"), "{text}");
    assert!(lines[5..].contains(&"+ plan".to_owned()) && text.contains("+ messages#"), "{text}");

    let stat = bench.text(&["log", "trip", "-S", "Oslo", "--stat", "--oneline"]);
    let lines: Vec<&str> = stat.lines().collect();
    assert_eq!(lines.len(), 3, "{stat}");
    assert_eq!(lines[1..], ["   + plan", "   plan  | changed"]);
    let cut = bench.text(&["log", "trip", "-S", "Bern", "--graph", "-n", "1"]);
    assert!(cut.lines().count() == 3 && cut.ends_with("~  (older ones: -n 0 shows all)\n"), "{cut}");
    let filtered = bench.text(&["log", "trip", "-S", "Bern", "--graph", "--channel", "city"]);
    assert!(filtered.lines().count() == 2 && filtered.contains("+ city"), "{filtered}");
    // The short id of the newest checkpoint depends on the time at which it is printed.
    let changes = |arguments: &[&str]| {
        let mut changes = bench.json(arguments)["changes"].clone();
        for change in changes.as_array_mut().unwrap() {
            change["by"].as_object_mut().unwrap().remove("short").unwrap();
        }
        changes
    };
    assert_eq!(changes(&["log", "trip", "-S", "Bern", "--graph"]), changes(&["log", "trip", "-S", "Bern"]));
    let none = bench.annals(&["log", "trip", "-S", "Paris", "--graph"]);
    assert!(code(&none) == 1 && stderr(&none).contains("no change of the log"), "{none:?}");

    bench.json(&["fork", "trip", "--name", "by train"]);
    bench.json(&["update", "by train", "--set", "city=\"Rome\""]);
    let fork = bench.text(&["log", "by train", "-S", "Bern", "--graph"]);
    assert!(fork.starts_with('@') && fork.lines().nth(1) == Some("      - city"), "{fork}");
    let elsewhere = fork.lines().filter(|line| line.contains("trip@")).count();
    assert_eq!((elsewhere, fork.lines().count()), (4, 6), "{fork}");
    let cut = bench.text(&["log", "by train", "-S", "Bern", "--graph", "-n", "3"]);
    assert!(cut.lines().count() == 5 && cut.ends_with("(older ones: -n 0 shows all)\n"), "{cut}");
}
