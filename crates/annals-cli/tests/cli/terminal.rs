//! The command on a terminal: a pseudo-terminal of `script`, which is part of util-linux.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;

use super::*;

/// The longest wait for an output.
const PATIENCE: Duration = Duration::from_secs(300);

/// A query that does not end.
const ENDLESS: &str = "with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n";

/// A command on a pseudo-terminal.
struct Terminal {
    child: std::process::Child,
    keys: std::process::ChildStdin,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Runs a command of the shell on a terminal with some columns and 12 rows. `annals` is a function of the shell,
    /// which Ctrl-C does not end.
    fn start(bench: &Bench, columns: usize, command: &str) -> Self {
        let annals = env!("CARGO_BIN_EXE_annals");
        let command = format!("annals() {{ '{annals}' \"$@\"; }}; stty cols {columns} rows 12; trap : INT; {command}");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"]);
        script.current_dir(bench.folder.path()).env("SHELL", "/bin/sh").env("ANNALS_STORE", "store.db");
        script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("COLUMNS").env_remove("PAGER");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = script.spawn().expect("script of util-linux is installed");
        let (keys, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(n @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, output, seen: String::new() }
    }

    /// Reads until a text is on the terminal.
    fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |seen| seen.contains(text));
    }

    /// Reads until the output is as it is wanted.
    fn wait_until(&mut self, what: &str, is_shown: impl Fn(&str) -> bool) {
        while !is_shown(&self.seen) {
            let more = self.output.recv_timeout(PATIENCE);
            let bytes = more.unwrap_or_else(|_| panic!("{what:?} is not shown: {:?}", self.seen));
            self.seen += &String::from_utf8_lossy(&bytes);
        }
    }

    /// Presses keys. A command that has ended does not read them: its output and exit code tell which came first.
    fn press(&mut self, keys: &str) {
        let pressed = self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush());
        assert!(pressed.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::BrokenPipe), "{pressed:?}");
    }

    /// Waits for the end, and returns the output on the terminal and the exit code. The echo of Ctrl-C is left out: it
    /// may come after the output of the command that the signal ends.
    fn end(self) -> (String, i32) {
        let (text, exit) = self.end_unchanged();
        (text.replace('\r', "").replace("^C", ""), exit)
    }

    /// Waits for the end, and returns the output with its carriage returns, and the exit code.
    fn end_unchanged(mut self) -> (String, i32) {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.seen += &String::from_utf8_lossy(&bytes);
        }
        let status = self.child.wait().unwrap();
        (self.seen, status.code().unwrap_or(-1))
    }
}

fn shown(bench: &Bench, columns: usize, command: &str) -> (String, i32) {
    Terminal::start(bench, columns, command).end()
}

/// Returns a line without its colours.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for (at, part) in line.split("\x1b[").enumerate() {
        text += if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
    }
    text
}

fn names() -> Bench {
    let bench = super::verbs::trip();
    for name in ["名前の長い旅行の計画です", "a thread with a name that is longer than a narrow terminal is wide"]
    {
        bench.json(&["fork", "trip", "--name", name]);
    }
    bench
}

#[test]
fn rows_fit_the_terminal_in_cells() {
    let bench = names();
    for command in
        ["annals threads", "annals log trip --no-pager", "annals search a", "annals tail", "annals tree trip"]
    {
        let wide = bench.text(&words(command));
        assert!(wide.lines().any(|line| line.width() > 40), "{command}: {wide}");
        let (text, exit) = shown(&bench, 40, command);
        assert_eq!(exit, 0, "{command}: {text}");
        let lines: Vec<String> = text.lines().map(plain).collect();
        assert!(lines.len() >= 3 && lines.iter().all(|line| line.width() <= 40), "{command}: {lines:?}");
        assert!(lines.iter().any(|line| line.width() >= 39), "{command} uses the width: {lines:?}");
        let columns = format!("COLUMNS=60 {}", env!("CARGO_BIN_EXE_annals")) + &command["annals".len()..];
        let (text, _) = shown(&bench, 40, &columns);
        assert!(text.lines().any(|line| plain(line).width() > 40), "COLUMNS is the width: {text}");
    }
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').skip(1).collect()
}

#[test]
fn long_output_goes_through_the_pager() {
    let bench = names();
    fs::write(bench.path("pager"), "#!/bin/sh\necho paged\ncat\n").unwrap();
    let with = |command: &str| shown(&bench, 80, &format!("export PAGER='sh ./pager'; {command}"));
    for command in ["annals log trip", "annals show trip", "annals diff trip"] {
        let (text, exit) = with(command);
        assert!(exit == 0 && text.starts_with("paged\n"), "{command}: {text}");
        assert!(text.contains("\x1b["), "colours are shown: {text}");
        for plain in [format!("{command} --no-pager"), format!("{command} --json"), format!("{command} | cat")] {
            assert!(!with(&plain).0.contains("paged"), "{plain}");
        }
    }
    assert!(!with("annals threads").0.contains("paged"));
    // The command succeeds if its pager ends early, and prints without one that does not exist.
    assert_eq!(shown(&bench, 80, "PAGER=true; export PAGER; annals log trip").1, 0);
    let (text, exit) = shown(&bench, 80, "PAGER=/no/such/pager; export PAGER; annals log trip");
    assert!(exit == 0 && text.contains("step 3"), "{text}");
}

#[test]
fn progress_is_shown_after_half_a_second_and_cleared() {
    let bench = names();
    // The least number of rows that this machine counts for longer than half a second.
    let count = |rows: u64| {
        let slow = ENDLESS.replace("from n)", &format!("from n where x < {rows})"));
        let (text, exit) = shown(&bench, 80, &format!("annals sql '{slow}'"));
        assert_eq!(exit, 0, "{text}");
        text.contains("reading the store (").then_some((slow, text, rows.to_string()))
    };
    let (slow, text, rows) = (0..8).map(|n| 3_000_000 << n).find_map(count).unwrap();
    let last = text.rsplit("\x1b[K").next().unwrap();
    assert!(last.contains(&rows) && !last.contains("reading"), "{text:?}");
    let quiet = format!("annals sql --quiet '{slow}'");
    let piped = format!("annals sql '{slow}' 2>file");
    for command in [quiet.as_str(), piped.as_str()] {
        assert!(!shown(&bench, 80, command).0.contains(" s)"), "{command}");
    }
    assert_eq!(fs::read_to_string(bench.path("file")).unwrap(), "");
}

/// Returns the lines of a terminal after an output that moves up and clears lines.
fn screen(output: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![String::new()], 0, 0);
    let mut rest = output;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("\x1b[A") {
            (rest, row) = (after, row - 1);
            continue;
        }
        if let Some(after) = rest.strip_prefix("\x1b[K") {
            rest = after;
            let line: &mut String = &mut lines[row];
            *line = line.chars().take(column).collect();
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                lines.resize(lines.len().max(row + 1), String::new());
            }
            c => {
                let mut line: Vec<char> = lines[row].chars().collect();
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                lines[row] = line.into_iter().collect();
                column += 1;
            }
        }
    }
    lines
}

#[test]
fn a_run_shows_the_nodes_that_run_in_place() {
    let bench = Bench::new();
    let long = "wrap_the_parcel_of_the_customer_with_ribbon";
    // The nodes run until both are shown.
    let waits = "until [ -e go ]; do sleep 0.05; done";
    let flow = format!(
        "channels = {{ n = 'sum' }}\n[nodes.weigh]\nrun = '{waits}; echo \"{{\\\"n\\\": 1}}\"'\n\
         [nodes.{long}]\nrun = '{waits}; echo \"{{\\\"n\\\": 2}}\"'\n[nodes.send]\nafter = ['weigh', '{long}']\nset = {{ n = 4 }}\n"
    );
    fs::write(bench.path("flow.toml"), flow).unwrap();
    let mut terminal = Terminal::start(&bench, 40, "annals run flow.toml --store flow.db");
    let frames_of = |text: &str| -> Vec<Vec<String>> {
        text.match_indices(" s)").map(|(at, end)| screen(&text[..at + end.len()])).collect()
    };
    let running = |frame: &Vec<String>| frame.iter().filter(|line| line.ends_with(" s)")).cloned().collect::<Vec<_>>();
    terminal.wait_until("both nodes", |seen| frames_of(seen).iter().any(|frame| running(frame).len() == 2));
    fs::write(bench.path("go"), "").unwrap();
    let (text, exit) = terminal.end_unchanged();
    assert_eq!(exit, 0, "{text:?}");
    let frames = frames_of(&text);
    let both = frames.iter().map(running).find(|lines| lines.len() == 2).unwrap_or_else(|| panic!("{text:?}"));
    assert!(both.iter().any(|line| line.starts_with("weigh (")), "{both:?}");
    assert!(both.iter().any(|line| line.starts_with("wrap_the_parcel") && line.contains("... (")), "{both:?}");
    assert!(both.iter().all(|line| line.width() < 40), "{both:?}");
    assert!(
        frames.iter().all(|frame| running(frame).len() <= 2),
        "a drawing takes the place of the one before: {text:?}"
    );
    let mut ended = screen(&text);
    ended.sort();
    let of = |word: &str, node: &str| format!("{word:<9} {node}");
    let mut expected = vec![String::new(), "n = 7".to_owned()];
    for node in ["weigh", long, "send"] {
        expected.extend([of("started", node), of("finished", node)]);
    }
    expected.sort();
    assert_eq!(ended, expected, "no line of the progress is left");
    for command in
        ["annals run flow.toml --again --store flow.db --quiet", "annals run flow.toml --again --store flow.db 2>file"]
    {
        assert!(!shown(&bench, 40, command).0.contains(" s)"), "{command}");
    }
}

#[test]
fn ctrl_c_ends_a_command_with_130() {
    let bench = names();
    let mut terminal = Terminal::start(&bench, 80, &format!("annals sql '{ENDLESS}'; echo \"exit $?\""));
    terminal.wait_for("reading the store");
    terminal.press("\x03");
    let (text, _) = terminal.end();
    assert!(text.ends_with("\x1b[Kexit 130\n"), "{text:?}");
    assert_eq!(code(&bench.annals(&["check"])), 0);
    assert_eq!(code(&bench.annals(&["sql", ENDLESS, "--timeout", "300ms"])), 5);
    let late = bench.annals(&["sql", ENDLESS, "--timeout", "300ms", "--json"]);
    assert_eq!((document(&late.stderr)["error"]["code"].as_str(), code(&late)), (Some("timed_out"), 5));
}

/// Takes the write lock of a store between two commits of another program, once it has more than `threads` threads. The
/// connection does not remove the log when it closes last: the other program, which cannot end the log while it is
/// locked out, would find that it is missing.
fn locked_with_more(store: &Path, threads: u32) -> annals::rusqlite::Connection {
    let conn = annals::rusqlite::Connection::open(store).unwrap();
    conn.set_db_config(annals::rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    conn.busy_timeout(PATIENCE).unwrap();
    loop {
        let found: u32 = conn.query_row("SELECT count(*) FROM thread", [], |row| row.get(0)).unwrap();
        if found > threads {
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            return conn;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An import that is interrupted before or between its commits leaves a store that is whole, and the next one goes on.
/// The lock of another program holds it where it is.
#[test]
fn ctrl_c_in_an_import_leaves_a_store_that_is_whole() {
    let bench = Bench::new();
    // More threads than one commit takes.
    let files: u64 = 800;
    let write = |path: &str, file: u64| {
        let line = |n: u64| json!({ "role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": format!("{file} says {n}") });
        let text: String = (0..5).map(|n| format!("{}\n", line(n))).collect();
        fs::write(bench.path(path), text).unwrap();
    };
    fs::create_dir(bench.path("chats")).unwrap();
    (0..files).for_each(|file| write(&format!("chats/{file}.jsonl"), file));
    write("first.jsonl", files);
    // The count of the messages and of the threads of a store.
    let counts = |store: &str| {
        let check = bench.annals_on(store, &["check"]);
        assert_eq!(code(&check), 0, "{store}: {check:?}");
        let query = "select count(*), count(distinct thread) from v_messages";
        let found = bench.annals_on(store, &["sql", query, "--json"]);
        let counts = document(&found.stdout)["rows"][0].clone();
        (counts[0].as_u64().unwrap(), counts[1].as_u64().unwrap())
    };
    let all = (5 * (files + 1), files + 1);
    // Another program may come too late to hold an import between two of its commits.
    let mut interrupted = [false; 2];
    for (attempt, is_begun) in [false, true].into_iter().cycle().take(100).enumerate() {
        if interrupted == [true; 2] {
            break;
        }
        let store = format!("{attempt}.db");
        assert_eq!(code(&bench.annals_on(&store, &["import", "first.jsonl"])), 0);
        let path = bench.path(&store);
        let early = (!is_begun).then(|| locked_with_more(&path, 0));
        let command = format!("echo ready; exec '{}' import chats --store {store}", env!("CARGO_BIN_EXE_annals"));
        let mut terminal = Terminal::start(&bench, 80, &command);
        let other = early.unwrap_or_else(|| locked_with_more(&path, 1));
        // An import that waits for longer than half a second says what it does.
        terminal.wait_for(if is_begun { "ready" } else { "files read" });
        terminal.press("\x03");
        let (text, exit) = terminal.end();
        drop(other);
        let found = counts(&store);
        // An import whose wait for the lock was over before the key came has ended with 5.
        if found != all && exit != 5 {
            assert_eq!(exit, 130, "{text}");
            assert_eq!(found == (5, 1), !is_begun, "{found:?}");
            interrupted[usize::from(is_begun)] = true;
        }
        let next = bench.annals_on(&store, &["import", "chats"]);
        assert_eq!(code(&next), 0, "{found:?}: {}", stderr(&next));
        assert_eq!(counts(&store), all, "the next import goes on");
    }
    assert_eq!(interrupted, [true; 2], "before and between the commits");
}

/// A run that is interrupted ends with its command, and continues at the same node.
#[test]
fn ctrl_c_in_a_run_ends_its_commands() {
    let bench = Bench::new();
    let flow = "channels = { n = 'sum' }\n[nodes.one]\nset = { n = 1 }\n[nodes.two]\nafter = 'one'\n\
                run = '[ -e again ] || { echo $$ > pid; exec sleep 600; }; echo \"{\\\"n\\\": 2}\"'\n";
    fs::write(bench.path("flow.toml"), flow).unwrap();
    let mut terminal = Terminal::start(&bench, 80, "annals run flow.toml --store flow.db; echo \"exit $?\"");
    terminal.wait_for("started   two");
    while fs::read_to_string(bench.path("pid")).unwrap_or_default().trim().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    terminal.press("\x03");
    let (text, _) = terminal.end();
    assert!(text.contains("repeat the command to go on") && text.ends_with("exit 130\n"), "{text}");
    let pid = fs::read_to_string(bench.path("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the command of the node has ended");
    assert_eq!(code(&bench.annals_on("flow.db", &["check"])), 0);
    fs::write(bench.path("again"), "").unwrap();
    let done = bench.annals_on("flow.db", &["run", "flow.toml"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(!text.contains("started   one") && text.contains("n = 3"), "{text}");
}

#[test]
fn colours_are_for_terminals() {
    let bench = names();
    assert!(shown(&bench, 80, "annals threads").0.contains("\x1b[2m"));
    for command in ["NO_COLOR=1; export NO_COLOR; annals threads", "TERM=dumb; annals threads", "annals threads | cat"]
    {
        assert!(!shown(&bench, 80, command).0.contains("\x1b["), "{command}");
    }
    let mut asked = Terminal::start(&bench, 80, "annals rm trip; echo \"exit $?\"");
    asked.wait_for("Go on? [y/N]");
    asked.press("n\n");
    assert!(asked.end().0.ends_with("exit 7\n"));
    assert_eq!(shown(&bench, 80, "annals rm trip --no-input").1, 7, "it does not ask");
}

/// A reader that ends ends the command, without an error.
#[test]
fn a_reader_that_is_gone_ends_the_command() {
    let bench = names();
    let endless = ENDLESS.replace("count(*)", "x");
    for arguments in [&["sql", &*endless][..], &["sql", &*endless, "--csv"], &["log", "trip"], &["tail", "-f"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args(arguments).args(["--store", "store.db"]).current_dir(bench.folder.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 4]).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), &*stderr(&output)), (0, ""), "{arguments:?}");
    }
}

#[test]
fn data_cannot_control_the_terminal() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    let evil = "\x1b[31mred\u{202e}\u{9b}\u{7f}\r\x07";
    let graph = StateGraph::with_schema(DynSchema::new().last("text").messages("talk").build())
        .node("ask", move |_: &DynState, context: &Context| {
            context.interrupt(evil)?;
            Ok(())
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = format!("thread{evil}");
    let update = DynUpdate::new().set("text", evil).messages("talk", [Message::human(evil)]);
    graph.invoke(&store.thread(&thread).unwrap(), update).unwrap();
    drop(store);
    let commands: [&[&str]; 9] = [
        &["threads"],
        &["log", &thread],
        &["show", &thread],
        &["show", &thread, "text"],
        &["show", &thread, "--messages", "3"],
        &["show", &thread, "--writes"],
        &["diff", &thread],
        &["show", &format!("{thread}@ffff")],
        &["fork", &thread, "--name", evil],
    ];
    for arguments in commands {
        for json in [&[][..], &["--json"]] {
            let output = bench.annals(&[arguments, json].concat());
            let all = format!("{}{}", String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output));
            let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!all.contains(bad) && !all.is_empty(), "{arguments:?}: {all:?}");
        }
    }
    assert_eq!(bench.json(&["show", &thread, "text"])["value"], evil, "and JSON keeps it whole");
}
