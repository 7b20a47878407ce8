//! The screen of runs: leases, attempts, pauses, stuck runs and their controls.

use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use annals::base::{Clock, Timestamp};
use annals::state::DynState;
use annals::store::MemoryBackend;
use annals_graph::graph::{NodeOptions, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::{Sleep, Timer, Worker};
use annals_runs::ThreadStatus;

use super::screens::waiting;
use super::writes::{form_token, post, writing};
use super::*;

/// A graph whose only node fails while a channel says so, after three attempts.
fn failing(store: &Store, name: &str) -> CompiledGraph<DynState> {
    let policy = RetryPolicy::new().max_attempts(3).initial_interval(Duration::from_millis(1)).jitter(false);
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .name("failing")
        .node_with(
            "pay",
            |state: &DynState| match state.value("n").as_int() {
                Some(1) => Err("the <bank> is closed".into()),
                _ => Ok(()),
            },
            NodeOptions::new().retry(policy.on_if(|_| true)),
        )
        .edge(START, "pay")
        .compile()
        .unwrap();
    graph.invoke(&store.thread(name).unwrap(), DynUpdate::new().set("n", 1)).unwrap_err();
    graph
}

/// Returns the document of the run of a thread.
fn run(page: &Page, thread: &str) -> Json {
    let runs = document(page, "/runs.json")["runs"].clone();
    let found = runs.as_array().unwrap().iter().find(|run| run["thread"] == thread).cloned();
    found.unwrap_or_else(|| panic!("{thread} is not among {runs}"))
}

/// Claims a thread, and does not release it.
fn claim(thread: &Thread, duration: Duration) {
    std::mem::forget(thread.lease(duration).unwrap());
}

#[test]
fn a_lease_shows_its_owner_its_end_and_the_recoveries() {
    let store = Store::memory();
    _ = waiting(&store, "booking");
    let page = page_of(&store);
    let before = run(&page, "booking");
    assert_eq!((&before["lease"], &before["recoveries"]), (&Json::Null, &json!(0)));
    assert!(!html(&page, "/runs").contains("lease of"));

    let thread = store.thread("booking").unwrap();
    claim(&thread, Duration::from_millis(10));
    std::thread::sleep(Duration::from_millis(20));
    assert!(html(&page, "/runs").contains("so a worker may claim the thread"));
    assert_eq!(run(&page, "booking")["lease"]["live"], false);
    let lease = thread.lease(Duration::from_secs(600)).unwrap();
    let (owner, until) = (lease.record().owner.to_string(), lease.record().expires_at.unwrap().to_string());
    let held = run(&page, "booking");
    assert_eq!((&held["lease"]["owner"], &held["lease"]["until"]), (&json!(owner), &json!(until)));
    assert_eq!(
        (&held["lease"]["live"], &held["lease"]["epoch"], &held["recoveries"]),
        (&json!(true), &json!(2), &json!(1))
    );
    let shown = html(&page, "/runs");
    for text in [format!("lease of {owner}, until {until} (in "), "continued 1 time after an owner".to_owned()] {
        assert!(shown.contains(&text), "{text}: {shown}");
    }
    lease.release().unwrap();
    assert_eq!(run(&page, "booking")["lease"], Json::Null);
}

#[test]
fn a_failed_task_shows_its_attempts_and_a_stuck_run_its_mark() {
    let store = Store::memory();
    let graph = failing(&store, "order");
    let page = page_of(&store);
    let failed = run(&page, "order");
    let task = &failed["tasks"][0];
    assert_eq!((&task["node"], &task["state"], &task["attempts"]), (&json!("pay"), &json!("failed"), &json!(3)));
    assert!(task["error"].as_str().unwrap().contains("the <bank> is closed"), "{task}");
    assert_eq!((&failed["status"], &failed["paused"]), (&json!("failed"), &json!(false)));
    let shown = html(&page, "/runs?status=failed");
    assert!(shown.contains("pay: failed, 3 attempts") && shown.contains("the &lt;bank&gt; is closed"), "{shown}");
    assert!(shown.contains("annals retry order --store chats.db") && !shown.contains("<button"), "{shown}");

    let stuck = store.thread("stuck").unwrap();
    graph.enqueue(&stuck, DynUpdate::new().set("n", 0)).unwrap();
    claim(&stuck, Duration::from_millis(10));
    std::thread::sleep(Duration::from_millis(20));
    let report = Worker::new(&store).register(&graph).max_recoveries(0).run_until_idle().unwrap();
    assert_eq!(report.stuck, 1);
    let run = run(&page, "stuck");
    assert_eq!((&run["status"], &run["recoveries"]), (&json!("stuck"), &json!(0)));
    let shown = html(&page, "/runs?status=stuck");
    assert!(shown.contains("stuck: the run was continued 1 times") && shown.contains("annals retry stuck"), "{shown}");
    assert!(!html(&page, "/runs?status=failed").contains("annals retry stuck"));
}

/// A clock that stands still, and a timer whose pauses end when it goes on.
#[derive(Clone, Default)]
pub(super) struct StoppedClock(Arc<(AtomicI64, Mutex<Vec<(Timestamp, Waker)>>)>);

impl StoppedClock {
    pub(super) fn go_on(&self, seconds: i64) {
        self.0.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
        self.0.1.lock().unwrap().drain(..).for_each(|(_, waker)| waker.wake());
    }

    /// Returns whether a task sleeps until that moment. A task counts its pause from the moment at which it begins to
    /// sleep, so the clock goes on after this.
    fn is_awaited(&self, end: &str) -> bool {
        self.0.1.lock().unwrap().iter().any(|(awaited, _)| awaited.to_string() == end)
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.0.load(Ordering::SeqCst))
    }
}

impl Timer for StoppedClock {
    fn sleep(&self, pause: Duration) -> Sleep {
        let (clock, end) = (self.clone(), self.now().saturating_add(pause));
        Box::pin(poll_fn(move |waiting| {
            let mut wakers = clock.0.1.lock().unwrap();
            if clock.now() >= end {
                return Poll::Ready(());
            }
            wakers.push((end, waiting.waker().clone()));
            Poll::Pending
        }))
    }
}

#[test]
fn a_task_that_waits_for_its_next_attempt_says_when() {
    let clock = StoppedClock::default();
    clock.go_on(1_000);
    let store = Store::with_backend(Arc::new(MemoryBackend::new()), OpenOptions::new().clock(clock.clone()));
    let policy = RetryPolicy::new().max_attempts(2).initial_interval(Duration::from_secs(2)).jitter(false);
    let tries = AtomicI64::new(0);
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .node_with(
            "pay",
            move |_: &DynState| match tries.fetch_add(1, Ordering::Relaxed) {
                0 => Err("the bank is closed".into()),
                _ => Ok(()),
            },
            NodeOptions::new().retry(policy.on_if(|_| true)),
        )
        .edge(START, "pay")
        .compile()
        .unwrap();
    let (thread, page) = (store.thread("order").unwrap(), page_of(&store));
    let (task, shown) = std::thread::scope(|scope| {
        let run = graph.run(&thread).lease(Duration::from_secs(60)).timer(clock.clone());
        scope.spawn(|| run.invoke(DynUpdate::new().set("n", 1)).unwrap());
        let mut task = Json::Null;
        for _ in 0..60_000 {
            task = document(&page, "/runs.json")["runs"][0]["tasks"][0].clone();
            if task["wake_at"].as_str().is_some_and(|end| clock.is_awaited(end)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let shown = html(&page, "/runs?status=running");
        clock.go_on(2);
        (task, shown)
    });
    assert_eq!((&task["node"], &task["attempts"]), (&json!("pay"), &json!(1)), "{task}");
    let next = format!("1 attempt, next at {} (in ", task["wake_at"].as_str().unwrap());
    assert!(shown.contains(&next) && shown.contains("lease of "), "{next}: {shown}");
    assert_eq!(document(&page, "/runs.json")["runs"], json!([]), "the second attempt succeeded");
}

#[test]
fn runs_are_controlled_by_forms() {
    let store = Store::memory();
    let graph = failing(&store, "order");
    _ = waiting(&store, "booking");
    let page = writing(&store);
    let token = form_token(&page, "/runs");
    let send = |thread: &str, fields: &str| {
        let response = page.handle(&post(&format!("/t/{thread}/control"), format!("form={token}&{fields}")));
        (response.status, response.value_of("location").unwrap_or_default().to_owned())
    };
    let shown = html(&page, "/runs?status=failed");
    for button in ["retry", "pause", "cancel"] {
        assert!(shown.contains(&format!("name=\"control\" value=\"{button}\">")), "{button}: {shown}");
    }
    assert!(!shown.contains("value=\"resume\">"), "the run is not paused: {shown}");

    assert_eq!(send("order", "control=pause"), (303, "/runs".into()));
    assert!(store.thread("order").unwrap().info().unwrap().facts.is_paused);
    assert_eq!(run(&page, "order")["paused"], true);
    assert!(html(&page, "/").contains("<span class=\"label\">paused</span>"), "the list of threads says so");
    let paused = html(&page, "/runs?status=failed");
    assert!(paused.contains(">paused</span>") && paused.contains("value=\"resume\">"), "{paused}");
    assert_eq!(send("order", "control=resume"), (303, "/runs".into()));
    assert!(!store.thread("order").unwrap().info().unwrap().facts.is_paused);

    assert_eq!(send("order", "control=retry"), (303, "/runs?status=running".into()));
    assert_eq!(run(&page, "order")["status"], "running");
    assert!(html(&page, "/runs").contains("pay: due"), "no run has it");
    assert_eq!(run(&page, "order")["tasks"][0]["state"], "due");
    let lease = store.thread("order").unwrap().lease(Duration::from_secs(600)).unwrap();
    assert!(html(&page, "/runs").contains("pay: running"), "a run has it");
    lease.release().unwrap();
    assert_eq!(send("order", "control=retry").0, 409, "no task has failed");
    _ = graph;

    assert_eq!(send("booking", "control=cancel&reason=+no+trip+"), (303, "/?status=cancelled".into()));
    let cancelled = store.thread("booking").unwrap().info().unwrap();
    assert_eq!(ThreadStatus::of(&cancelled), ThreadStatus::Cancelled(Some("no trip".into())));
    assert_eq!(send("booking", "control=cancel").0, 409, "it is cancelled");
    assert_eq!(send("booking", "control=drop").0, 400);
    assert_eq!(send("nothing", "control=pause").0, 404);

    let reading = page_of(&store);
    let refused = reading.handle(&post("/t/order/control", format!("form={token}&control=cancel")));
    assert_eq!(refused.status, 403);
    let foreign = post("/t/order/control", "control=cancel".into());
    assert_eq!(page.handle(&foreign).status, 403, "no form token");
    assert_eq!(get(&page, "/t/order/control").status, 404, "a read controls nothing");
    assert_eq!(run(&page, "order")["status"], "running", "nothing was cancelled");
}
