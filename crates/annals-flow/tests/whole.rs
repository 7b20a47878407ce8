//! The members of a workflow file that hold for all its nodes: outputs of commands, files as results, patterns,
//! notifications and schedules. Two workflows of `examples/workflows` run from their start to their end.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use annals_flow::{CommandLog, Error, Flow, FlowEnd, FlowEvent, FlowInput};
use annals_graph::annals::base::{Clock, Timestamp};
use annals_graph::annals::store::OpenOptions;
use annals_graph::prelude::{Store, Thread, Value};
use annals_graph::runs::{StepState, ThreadRuns};
use annals_graph::{Schedules, Worker};
use serde_json::json;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn flow(folder: &Path, text: &str) -> Flow {
    Flow::parse(folder.join("flow.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

fn quiet(_: FlowEvent) {}

/// Returns the outputs of the commands of a thread, the newest first, with their nodes and states.
fn logs(thread: &Thread) -> Vec<(String, StepState, CommandLog)> {
    let steps = thread.steps().unwrap().map(Result::unwrap);
    steps.filter_map(|step| Some((step.name.to_string(), step.state, CommandLog::of(&step)?))).collect()
}

#[test]
fn the_output_of_each_command_is_kept_with_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let text = "channels = { seen = 'last', all = 'last' }\n[nodes.quiet]\nrun = 'true'\n[nodes.a]\nafter = 'quiet'\n\
                run = 'echo out; echo err >&2'\ninto = 'seen'\n[nodes.b]\nafter = 'a'\nmatrix = { n = [1, 2] }\n\
                run = 'echo item $n'\ninto = 'all'\n[nodes.c]\nafter = 'b'\nretry = { attempts = 2 }\n\
                run = 'echo try $ANNALS_ATTEMPT >&2; [ -e fixed ]'\n";
    for store in [Store::memory(), Store::open(folder.path().join("store.db")).unwrap()] {
        _ = fs::remove_file(folder.path().join("fixed"));
        let thread = store.thread("t").unwrap();
        let flow = flow(folder.path(), text);
        flow.run(&thread, FlowInput::new(), &mut quiet).unwrap_err();
        let found = logs(&thread);
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["c", "b", "b", "a"], "a command that prints nothing has no log");
        let (_, state, last) = &found[0];
        assert_eq!((state, last.stderr.as_str(), last.attempt, last.exit), (&StepState::Failed, "try 2\n", 2, Some(1)));
        let items: Vec<_> = found[1..3].iter().map(|(_, _, log)| (log.item.as_deref(), log.stdout.as_str())).collect();
        assert!(items.contains(&(Some("{\"n\":2}"), "item 2\n")), "{items:?}");
        let of_a = &found[3].2;
        assert_eq!((of_a.stdout.as_str(), of_a.stderr.as_str(), of_a.exit), ("out\n", "err\n", Some(0)));
        fs::write(folder.path().join("fixed"), "").unwrap();
        flow.run(&thread, FlowInput::new(), &mut quiet).unwrap();
        let (_, state, last) = &logs(&thread)[0];
        assert_eq!((state, last.stderr.as_str(), last.exit), (&StepState::Done, "try 1\n", Some(0)));
        assert!(store.check().unwrap().problems.is_empty());
    }
}

/// The command waits for the file that the test writes when it has seen the beginning of the output in the store.
#[test]
fn the_output_of_a_command_that_runs_is_read_from_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let text = "channels = { list = 'last' }\n[nodes.a]\neach = 'list'\ninto = 'list'\n\
                run = 'echo begun; until [ -e go ]; do sleep 0.02; done; echo ended'\n";
    let flow = flow(folder.path(), &format!("input = {{ list = ['x'] }}\n{text}"));
    let store = Store::open(folder.path().join("store.db")).unwrap();
    let thread = store.thread("t").unwrap();
    let seen = std::thread::scope(|scope| {
        let run = scope.spawn(|| flow.run(&thread, FlowInput::new(), &mut quiet));
        let seen = loop {
            let found = if thread.head().unwrap().is_some() { logs(&thread) } else { Vec::new() };
            if let Some((_, state, log)) = found.into_iter().next() {
                break (state, log.stdout, log.exit);
            }
            assert!(!run.is_finished(), "the run waits for the file");
            std::thread::yield_now();
        };
        fs::write(folder.path().join("go"), "").unwrap();
        run.join().unwrap().unwrap();
        seen
    });
    assert_eq!(seen, (StepState::Running, "begun\n".to_owned(), None));
    assert_eq!(logs(&thread)[0].2.stdout, "begun\nended\n");
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn a_long_output_keeps_its_end_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let text = "secrets = 'TOKEN'\nredact = ['ghp_*']\n[nodes.a]\n\
                run = 'seq 1 30000; echo $TOKEN ghp_abc >&2; echo $TOKEN ghp_abc'\nstatus = 's'\ninto = 'o'\n\
                [channels]\ns = 'last'\no = 'last'\n";
    let thread = Store::memory().thread("t").unwrap();
    flow(folder.path(), text).secrets(|_| Some("tiger".to_owned())).run(&thread, FlowInput::new(), &mut quiet).unwrap();
    let log = logs(&thread).remove(0).2;
    assert_eq!(log.stderr, "*** ***\n");
    assert!(log.stdout.ends_with("\n30000\n*** ***\n") && log.stdout.len() <= 64 << 10);
    let first = log.stdout.lines().next().unwrap();
    let printed: usize = (1..=30_000).map(|n: usize| n.to_string().len() + 1).sum();
    let before: usize = (1..first.parse().unwrap()).map(|n: usize| n.to_string().len() + 1).sum();
    assert!(log.stdout_dropped == before as u64 && before < printed, "{before} bytes before {first}");
    let state = thread.head().unwrap().unwrap().get("o").unwrap().unwrap();
    assert!(state.as_str().is_some_and(|text| text.ends_with("*** ***") && text.starts_with("1\n2\n")));
}

#[test]
fn files_are_results_with_their_hash() {
    let folder = tempfile::tempdir().unwrap();
    let text = "channels = { name = 'last', made = 'last' }\ninput = { name = 'out' }\n[nodes.a]\n\
                run = 'mkdir -p sub; [ ! -e go ] || printf abc > sub/out.txt'\nfolder = '.'\n\
                files = { made = \"= 'sub/' + name + '.txt'\" }\n";
    let (flow, thread) = (flow(folder.path(), text), Store::memory().thread("t").unwrap());
    let missing = flow.run(&thread, FlowInput::new(), &mut quiet).unwrap_err().to_string();
    assert!(missing.contains("out.txt of `files` cannot be read"), "{missing}");
    fs::write(folder.path().join("go"), "").unwrap();
    let FlowEnd::Done { state } = flow.run(&thread, FlowInput::new(), &mut quiet).unwrap() else { panic!("it ends") };
    let made = state["made"].to_json();
    assert_eq!((&made["bytes"], made["sha256"].as_str().unwrap().len()), (&json!(3), 64));
    assert!(made["path"].as_str().unwrap().ends_with("sub/out.txt"), "{made}");
    let each =
        "channels = { l = 'last', f = 'last' }\n[nodes.a]\neach = 'l'\nrun = 'true'\ninto = 'l'\nfiles = { f = 'x' }";
    let Err(Error::File(wrong)) = Flow::parse("a.toml", each) else { panic!("it is wrong") };
    assert!(wrong.to_string().contains("`files` does not go with `each`"), "{wrong}");
}

/// A notification is called for an open interrupt, once, and for each failure; its own failure ends no run.
#[test]
fn a_person_is_notified_of_interrupts_and_failures() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = 'ship'\nsecrets = 'HOOK'\nchannels = { sure = 'last' }\n[notify]\n\
                ask = 'echo \"$ANNALS_EVENT $ANNALS_WORKFLOW $ANNALS_THREAD $ANNALS_TEXT $HOOK\" >> told; cat >> json'\n\
                failure = ['false']\n[nodes.ask]\nask = \"Ship?\"\nanswer = 'boolean'\ninto = 'sure'\n\
                [nodes.fail]\nafter = 'ask'\nrun = 'exit 3'\n";
    let told = || fs::read_to_string(folder.path().join("told")).unwrap_or_default();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    let flow = flow(folder.path(), text)
        .secrets(|_| Some("url-1".to_owned()))
        .on_notify_error(move |error| seen.lock().unwrap().push(error.to_owned()));
    let thread = Store::memory().thread("order-17").unwrap();
    for _ in 0..2 {
        flow.run(&thread, FlowInput::new(), &mut quiet).unwrap();
    }
    assert_eq!(told(), "ask ship order-17 Ship? url-1\n", "once for an interrupt");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("json")).unwrap()).unwrap();
    assert_eq!(json, json!({ "event": "ask", "workflow": "ship", "thread": "order-17", "text": "Ship?" }));
    flow.run(&thread, FlowInput::new().resume(true), &mut quiet).unwrap_err();
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("failure for thread order-17 failed: false: exit code 1"), "{}", errors[0]);
}

#[test]
fn wrong_keys_of_the_whole_file_name_the_place() {
    let node = "[nodes.a]\nset = {}\n";
    for (text, line, column, message) in [
        ("schedule = {}", 1, 12, "either `every` or `cron`"),
        ("schedule = { every = '1h', cron = '* * * * *' }", 1, 12, "either `every` or `cron`"),
        ("schedule = { every = '1ms' }", 1, 22, "period"),
        ("schedule = { every = 'hour' }", 1, 22, "is not a duration"),
        ("schedule = { every = '1h', zone = 'UTC' }", 1, 35, "`zone` belongs to `cron`"),
        ("schedule = { cron = '61 * * * *' }", 1, 21, "cron expression"),
        ("schedule = { cron = '1 * * * *', zone = 'Europe/Atlantis' }", 1, 41, "Atlantis"),
        ("schedule = { cron = '1 * * * *', missed = 'al' }", 1, 43, "`al` is not known"),
        ("schedule = { cron = '1 * * * *', clock_changes = 'x' }", 1, 50, "`x` is not known"),
        ("schedule = { crom = '1 * * * *' }", 1, 14, "unknown key `crom`"),
        ("redact = ['ab*']", 1, 11, "cannot be a pattern"),
        ("notify = {}", 1, 10, "no command"),
        ("notify = { ask = [] }", 1, 18, "the command is empty"),
        ("notify = { asks = 'x' }", 1, 12, "unknown key `asks`"),
    ] {
        let Err(Error::File(error)) = Flow::parse("a.toml", &format!("{text}\n{node}")) else { panic!("{text}") };
        let fits = error
            .problems
            .iter()
            .any(|problem| (problem.line, problem.column) == (line, column) && problem.message.contains(message));
        assert!(fits, "{text}: {error}");
    }
}

#[derive(Clone)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

impl Hands {
    fn at(text: &str) -> Self {
        Self(Arc::new(AtomicI64::new(text.parse::<Timestamp>().unwrap().as_micros())))
    }

    fn set(&self, text: &str) {
        self.0.store(text.parse::<Timestamp>().unwrap().as_micros(), Ordering::SeqCst);
    }
}

fn copied(example: &str, folder: &Path) -> Flow {
    let to = folder.join(format!("{example}.toml"));
    fs::copy(format!("{ROOT}/examples/workflows/{example}.toml"), &to).unwrap();
    Flow::open(to).unwrap_or_else(|error| panic!("{error}"))
}

/// The nightly workflow runs at 02:30 in Zurich, also in the night in which the clocks go forward.
#[test]
fn the_nightly_workflow_runs_at_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let (hands, beside) = (Hands::at("2027-03-26T12:00:00Z"), tempfile::tempdir().unwrap());
    let store = Store::open_with(beside.path().join("store.db"), OpenOptions::new().clock(hands.clone())).unwrap();
    let flow = copied("nightly", folder.path());
    flow.add_schedule(&store).unwrap();
    Schedules::of(&store).pause("nightly").unwrap();
    flow.add_schedule(&store).unwrap();
    assert!(Schedules::of(&store).get("nightly").unwrap().unwrap().is_paused(), "a pause stays");
    Schedules::of(&store).resume("nightly").unwrap();
    let work = || Worker::new(&store).register(flow.graph()).run_until_idle().unwrap().continued;
    assert_eq!(work(), 0);
    for (now, thread) in [
        ("2027-03-27T01:30:20Z", "nightly/2027-03-27T01:30:00.000000Z"),
        // On 28 March 2027 the clocks go from 02:00 to 03:00.
        ("2027-03-28T01:30:20Z", "nightly/2027-03-28T01:30:00.000000Z"),
        ("2027-03-29T00:30:20Z", "nightly/2027-03-29T00:30:00.000000Z"),
    ] {
        hands.set(now);
        assert_eq!((work(), work()), (1, 0), "{now}");
        let FlowEnd::Done { state } = flow.run(&store.thread(thread).unwrap(), FlowInput::new(), &mut quiet).unwrap()
        else {
            panic!("{thread} has ended")
        };
        let archive = state["archive"].to_json();
        let path = archive["path"].as_str().unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), archive["bytes"].as_u64().unwrap(), "{path}");
        assert!(state["entries"].as_int().unwrap() > 1, "{state:?}");
    }
    let plain = Flow::parse(folder.path().join("nightly.toml"), "[nodes.a]\nset = {}\n").unwrap();
    plain.add_schedule(&store).unwrap();
    assert!(Schedules::of(&store).list().unwrap().is_empty(), "the file has no schedule any more");
}

#[test]
fn the_review_workflow_keeps_its_outputs_and_asks_for_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && \
               git -c user.name=a -c user.email=a@b commit -q --allow-empty -m two";
    assert!(Command::new("sh").args(["-ec", git]).current_dir(folder.path()).status().unwrap().success());
    let flow = copied("review", folder.path());
    let thread = Store::memory().thread("review").unwrap();
    let checks = ["true", "echo ghp_secret; [ -e fixed ]"].map(Value::from).to_vec();
    let given = || [("checks".to_owned(), Value::List(checks.clone()))].into_iter().collect();
    flow.run(&thread, FlowInput::new().values(given()), &mut quiet).unwrap_err();
    let failed = logs(&thread).into_iter().find(|(_, state, _)| *state == StepState::Failed).unwrap().2;
    assert!(failed.stderr.ends_with("***\n") && failed.attempt == 2 && failed.exit == Some(1), "{failed:?}");
    fs::write(folder.path().join("fixed"), "").unwrap();
    let waiting = flow.run(&thread, FlowInput::new(), &mut quiet).unwrap();
    let FlowEnd::Interrupted { interrupts, .. } = waiting else { panic!("{waiting:?}") };
    assert_eq!(interrupts[0].value, Value::from("1 commits, 2 checks passed. Merge?"));
    let refused = flow.run(&thread, FlowInput::new().resume("yes"), &mut quiet).unwrap_err();
    assert!(matches!(refused, Error::ResumeValue { .. }), "{refused}");
    let FlowEnd::Done { state } = flow.run(&thread, FlowInput::new().resume("merge"), &mut quiet).unwrap() else {
        panic!("it ends")
    };
    let report = state["report"].to_json();
    let sum = Command::new("sha256sum").arg(report["path"].as_str().unwrap()).output().unwrap().stdout;
    assert!(String::from_utf8(sum).unwrap().starts_with(report["sha256"].as_str().unwrap()));
    assert!(state["note"].as_str().unwrap().ends_with(report["sha256"].as_str().unwrap()));
    let notices = fs::read_to_string(folder.path().join("notices.txt")).unwrap();
    assert!(notices.starts_with("review failed: "), "{notices}");
    let asked: Vec<&str> = notices.lines().filter(|line| line.starts_with("review: ")).collect();
    assert_eq!(asked, ["review: 1 commits, 2 checks passed. Merge?"], "once, though an answer was refused");
}
