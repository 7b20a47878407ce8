//! The output of every verb, its `--help` and its errors over fixed stores, compared with the files of
//! `tests/snapshots`.
//!
//! Each file has commands and their outputs: `$ COMMAND`, the lines of stdout, those of stderr after `! `, and the
//! exit code if it is not 0. With the environment variable `ANNALS_SNAPSHOTS=renew` the test writes the files anew.

use std::collections::BTreeSet;

use super::guides::{normal, three_threads, words};
use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");

/// The lines of a command that are compared.
#[derive(Clone, Copy, PartialEq)]
enum SnapshotLines {
    /// All, as they are.
    Exactly,
    /// All, with words in the place of ids and with single spaces: the ids of new checkpoints come from the present
    /// time.
    Ids,
    /// All, with a word in the place of numbers: they are sizes, versions and durations of this build and this machine.
    Numbers,
    /// The first ones: a generated script or page is long.
    Begin,
}

use SnapshotLines::{Begin, Exactly, Ids, Numbers};

/// The lines of a generated script or page.
const BEGIN: usize = 30;

/// The files, each with its commands, which run one after the other on a store of their own.
const SNAPSHOTS: &[(&str, SnapshotLines, &[&str])] = &[
    (
        "threads",
        Exactly,
        &[
            "annals threads",
            "annals threads --count",
            "annals threads --status failed",
            "annals threads --title trip --json",
            "annals threads --jsonl -n 1",
            "annals threads --since 1h",
        ],
    ),
    (
        "log",
        Exactly,
        &[
            "annals log trip",
            "annals log trip --oneline",
            "annals log trip --stat -n 2",
            "annals log trip --graph --channel city",
            "annals log trip --node model",
            "annals log trip -S Basel",
            "annals log trip -S Basel --node model --oneline",
            "annals log trip -S Basel --graph",
            "annals log trip -S Basel --stat --oneline -n 1",
            "annals log order-17",
            "annals log order-18",
            "annals log trip --jsonl -n 1",
        ],
    ),
    ("tree", Exactly, &["annals tree trip", "annals tree trip --all"]),
    (
        "show",
        Exactly,
        &[
            "annals show trip",
            "annals show trip~2 messages",
            "annals show trip messages[0].content",
            "annals show trip --messages 1",
            "annals show order-17 --writes",
            "annals show trip --json",
        ],
    ),
    (
        "diff",
        Exactly,
        &[
            "annals diff trip~4 trip",
            "annals diff trip",
            "annals diff trip~4 trip --stat --exit-code",
            "annals diff trip~4 trip --messages",
            "annals diff trip~1 trip --messages --exit-code",
            "annals diff trip~4 trip --messages --jsonl",
            "annals diff trip~4 trip --patch",
            "annals diff trip~4 trip --patch --json",
            "annals diff trip --messages --patch",
        ],
    ),
    ("blame", Exactly, &["annals blame trip", "annals blame trip messages", "annals blame trip city"]),
    ("evolution", Exactly, &["annals evolution trip city"]),
    ("search", Exactly, &["annals search gasthof", "annals search basel --role human", "annals search zebra"]),
    ("steps", Exactly, &["annals steps order-17", "annals steps order-18", "annals steps trip -n 1"]),
    (
        "runs",
        Exactly,
        &["annals runs", "annals runs order-18", "annals runs --status failed", "annals runs --graph trips --since 1d"],
    ),
    ("pending", Exactly, &["annals pending", "annals pending --jsonl"]),
    ("operations", Exactly, &["annals operations trip"]),
    ("tail", Exactly, &["annals tail -n 3", "annals tail trip -n 1 --json"]),
    (
        "sums",
        Exactly,
        &[
            "annals stats --by model",
            "annals stats --by day --csv",
            "annals stats --by model,day --csv",
            "annals stats --by thread,model --jsonl",
            "annals stats --by thread --json",
            "annals stats --by node",
            "annals stats --by channel -n 1",
        ],
    ),
    (
        "sql",
        Exactly,
        &[
            "annals sql 'select thread, count(*) as messages from v_messages group by 1'",
            "annals sql 'select thread, title from v_threads order by 1' --csv -n 2",
            "annals sql 'select thread from v_threads order by 1' --jsonl",
        ],
    ),
    ("check", Exactly, &["annals check", "annals check --json"]),
    (
        "export",
        Exactly,
        &["annals export trip --format markdown", "annals export trip --format openai", "annals export trip~4 --lines"],
    ),
    (
        "graph",
        Exactly,
        &[
            "annals graph flow.toml",
            "annals graph flow.toml --format dot",
            "annals graph flow.toml --format text",
            "annals graph flow.toml --json",
        ],
    ),
    ("run", Exactly, &["annals run flow.toml", "annals run flow.toml --thread b --input '{\"n\": 5}' --json"]),
    (
        "rerun",
        Ids,
        &[
            "annals run flow.toml",
            "annals rerun sum~1 flow.toml --set n=9",
            "annals rerun sum flow.toml",
            "annals logs sum",
        ],
    ),
    (
        "work",
        Numbers,
        &[
            "annals enqueue flow.toml --thread later --delay 2h",
            "annals enqueue flow.toml --thread next --priority 5 --input '{\"n\": 5}' --json",
            "annals enqueue flow.toml --key mail",
            "annals enqueue flow.toml --key mail",
            "annals enqueue flow.toml --thread next",
            "annals enqueue --queue book --argument 17 --thread order-19",
            "annals work flow.toml --once --concurrency 1",
            "annals show next n",
            "annals enqueue flow.toml --thread next",
            "annals work flow.toml --once",
            "annals work flow.toml --once",
            "annals work flow.toml flow.toml",
        ],
    ),
    ("bisect", Exactly, &["annals bisect trip -- grep -q Bern", "annals bisect trip --json -- false"]),
    (
        "changes",
        Ids,
        &[
            "annals update trip --set city=Rome --say 'Then Rome'",
            "annals undo trip",
            "annals redo trip",
            "annals branch trip north --at ~1",
            "annals branch trip",
            "annals switch trip north",
            "annals rewind trip~1",
            "annals fork trip --name 'trip by train'",
            "annals copy trip again",
            "annals facts trip --title Rome --label spring --pin",
            "annals facts trip",
            "annals archive again",
            "annals threads --archived --count",
            "annals rm 'trip by train' --yes",
            "annals undo 'trip by train'",
            "annals prune trip --keep-last 1",
            "annals prune trip --keep-last 1 --yes",
            "annals erase again",
            "annals erase again --yes",
        ],
    ),
    (
        "control",
        Ids,
        &[
            "annals signal trip paid 40",
            "annals signal order-18 review",
            "annals pause order-18",
            "annals pause order-18",
            "annals resume order-18 --json",
            "annals answer trip yes",
            "annals answer order-18 yes",
            "annals answer order-18 no",
            "annals pause --graph order",
            "annals pause --graph order --yes",
            "annals resume --status failed --yes --json",
            "annals cancel --status done",
            "annals cancel --title nothing",
            "annals cancel order-17 --status failed",
            "annals retry order-17 order-18",
            "annals safe order-17",
            "annals safe order-17@{step:0}",
            "annals safe order-18",
            "annals safe trip",
            "annals restart order-17 --from 0",
            "annals restart order-18@{step:1}",
            "annals restart trip",
            "annals restart trip --from 99",
            "annals restart trip --from soon",
            "annals undo order-17",
            "annals cancel order-17 --reason late",
            "annals cancel order-17",
            "annals threads --status cancelled --count",
            "annals signal order-17 paid",
        ],
    ),
    (
        "import",
        Ids,
        &[
            "annals import chat.jsonl",
            "annals import chat.jsonl",
            "annals import chat.jsonl --name new --format openai",
            "annals export --all --format turns-json",
        ],
    ),
    (
        "files",
        Numbers,
        &[
            "annals stats",
            "annals backup copy.db",
            "annals restore copy.db again.db",
            "annals recover copy.db recovered.db",
            "annals export trip --format thread --out thread.db",
            "annals export trip --format thread",
            "annals import thread.db",
            "annals import thread.db --name again",
            "annals compact",
            "annals doctor",
        ],
    ),
    ("demo", Numbers, &["annals demo --drawing", "annals demo --drawing --json"]),
    ("generated", Begin, &["annals completions bash", "annals completions fish", "annals man"]),
    (
        "errors",
        Exactly,
        &[
            "annals shwo",
            "annals log",
            "annals log nobody",
            "annals log tripp",
            "annals show trip@ffff",
            "annals show trip@{step:99}",
            "annals show trip nothing",
            "annals show trip plan[",
            "annals log trip --since soon",
            "annals threads --timeout 0s",
            "annals threads --limit many",
            "annals export nobody --format odt",
            "annals export trip~8",
            "annals threads --store absent.db",
            "annals threads --store chat.jsonl",
            "annals threads --store .",
            "annals rm trip",
            "annals fork trip --name order-17",
            "annals switch trip south",
            "annals backup store.db",
            "annals sql 'delete from checkpoint'",
            "annals sql 'select nothing'",
            "annals import absent.jsonl",
            "annals run absent.toml",
            "annals run bad.toml",
            "annals prune trip",
            "annals serve absent.db",
            "annals check --since nowhere",
            "annals show nobody --json",
            "annals shwo --jsonl",
        ],
    ),
];

const FLOW: &str = "name = 'sum'\ndescription = 'Adds'\nchannels = { n = 'sum' }\ninput = { n = 1 }\n[nodes.add]\n\
                    set = { n = 2 }\nnext = [{ if = 'n > 4', to = 'end' }, { to = 'double' }]\n\
                    [nodes.double]\nset = { n = '= n' }\n";

/// A folder with the fixed store and the files that the commands read.
pub(super) fn fixed() -> Bench {
    let bench = Bench::new();
    three_threads(&bench.path("store.db"), "2020-05-04T09:00:00Z");
    fs::write(bench.path("flow.toml"), FLOW).unwrap();
    fs::write(bench.path("bad.toml"), "[nodes.build]\nrun = 'true'\nnext = 'biuld'\n").unwrap();
    let lines =
        "{\"role\": \"user\", \"content\": \"A hotel\"}\n{\"role\": \"assistant\", \"content\": \"In Bern?\"}\n";
    fs::write(bench.path("chat.jsonl"), lines).unwrap();
    bench
}

/// Puts a word in the place of each number, and single spaces between words.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if text.ends_with('N') => {}
            '0'..='9' => text.push('N'),
            c => text.push(c),
        }
    }
    text.replace("N.N", "N")
        .replace("KiB", "B")
        .replace("MiB", "B")
        .replace("GiB", "B")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Puts `now` in the place of an age in seconds: a command can take some on a machine that does other work.
pub(super) fn without_seconds(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let (mut text, mut at) = (Vec::new(), 0);
    while let Some(word) = words.get(at) {
        let is_age = word.parse::<u64>().is_ok() && words[at + 1..].starts_with(&["s", "ago"]);
        text.push(if is_age { "now" } else { word });
        at += if is_age { 3 } else { 1 };
    }
    text.join(" ")
}

/// Returns a command with its output.
fn shown(bench: &Bench, command: &str, compared: SnapshotLines) -> String {
    let arguments = words(command);
    let mut process = Command::new(env!("CARGO_BIN_EXE_annals"));
    process.args(&arguments[1..]).current_dir(bench.folder.path()).stdin(Stdio::null());
    for variable in ["ANNALS_KEY_FILE", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        process.env_remove(variable);
    }
    let output = process.env("ANNALS_STORE", "store.db").output().unwrap();
    let mut text = format!("$ {command}\n");
    // Each bench has a folder of its own.
    let folder = format!("{}/", bench.folder.path().canonicalize().unwrap().display());
    let stdout = String::from_utf8_lossy(&output.stdout).replace(&folder, "");
    let stderr = stderr(&output).replace(&folder, "");
    let lines = stdout.lines().map(str::to_owned).chain(stderr.lines().map(|line| format!("! {line}")));
    for (at, line) in lines.enumerate() {
        let line = match compared {
            Begin if at == BEGIN => {
                text += "...\n";
                break;
            }
            Exactly | Begin => line,
            Ids => without_seconds(&normal(&line)),
            Numbers => without_numbers(&line),
        };
        text += line.trim_end();
        text.push('\n');
    }
    if code(&output) != 0 {
        text += &format!("(exit {})\n", code(&output));
    }
    text
}

fn compare(name: &str, found: &str) {
    compare_file(&Path::new(FOLDER).join(name).with_extension("txt"), found);
}

/// Compares a text with a file of the repository, or writes it there.
#[allow(clippy::disallowed_methods, reason = "snapshots are renewed when it is asked for")]
pub(super) fn compare_file(path: &Path, found: &str) {
    if std::env::var_os("ANNALS_SNAPSHOTS").is_some_and(|value| value == "renew") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default().replace('\r', "");
    let differs = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    assert!(
        expected == found,
        "{}, line {}:\n  expected {:?}\n  found    {:?}\nANNALS_SNAPSHOTS=renew writes it anew; the whole:\n{found}",
        path.display(),
        line + 1,
        at(&expected),
        at(found)
    );
}

/// Returns the verbs that `annals --help` lists.
fn verbs() -> Vec<String> {
    let help = run(Path::new("."), &["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help").map(str::to_owned).collect()
}

#[test]
fn ages_in_seconds_are_one_word() {
    assert_eq!(without_seconds("again 9 5 s ago done"), "again 9 now done");
    assert_eq!(without_seconds("5 minutes ago"), "5 minutes ago");
}

#[test]
fn every_verb_prints_what_its_snapshot_says() {
    let mut seen = BTreeSet::new();
    for (name, compared, commands) in SNAPSHOTS {
        let bench = fixed();
        let found: Vec<String> = commands.iter().map(|command| shown(&bench, command, *compared)).collect();
        compare(name, &found.join("\n"));
        seen.extend(commands.iter().filter_map(|command| words(command).into_iter().nth(1)));
    }
    // These go on until they are ended, and are tested with clients.
    let served = ["serve", "mcp"];
    let missing: Vec<String> =
        verbs().into_iter().filter(|verb| !seen.contains(verb) && !served.contains(&verb.as_str())).collect();
    assert!(missing.is_empty(), "no snapshot has {missing:?}");
}

#[test]
fn the_help_of_every_verb_is_that_of_its_snapshot() {
    let bench = Bench::new();
    let mut found = vec![shown(&bench, "annals --help", Exactly), shown(&bench, "annals --version", Numbers)];
    let verbs = verbs();
    assert!(verbs.len() > 36, "{verbs:?}");
    found.extend(verbs.iter().map(|verb| shown(&bench, &format!("annals {verb} --help"), Exactly)));
    compare("help", &found.join("\n"));
}
