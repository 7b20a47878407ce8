//! The pages in Chromium: every screen with and without JavaScript, the keyboard, a long thread, live updates, a resume
//! value, a fork, and hostile content. Without chromedriver the test says so and ends.

use annals::base::Encoded;
use annals::store::Source;
use annals::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, Parent, Payload};
use annals_page::PageServer;
use annals_runs::ThreadRuns;

use super::forms::asking;
use super::screens::{calls, waiting};
use super::webdriver::Browser;
use super::*;

const SCRIPT: &str = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
/// Returns the steps of the long thread: ten times as many with the variable `ANNALS_ALL_CASES`.
#[allow(clippy::disallowed_methods)]
fn steps() -> i64 {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { 100_000 } else { 10_000 }
}

/// A server of a store with a trip, a waiting thread, a long thread and a hostile one.
fn server(store: &Store, steps: i64) -> std::sync::Arc<PageServer> {
    trip(store);
    _ = waiting(store, "booking");
    calls(store, "fan");
    let means = json!({ "question": "By which means?", "options": ["by bus", { "label": "by boat", "value": 7 }] });
    let schema = json!({ "type": "object", "properties": { "seats": { "type": "integer" }, "sure": { "type": "boolean" } },
        "required": ["seats"] });
    drop(asking(store, "order", vec![(means, None), (json!("How many?"), Some(schema))]));
    let hostile = store.thread("hostile").unwrap();
    let turned = "\u{202e}txet desrever\u{202c} \u{5e9}\u{5dc}\u{5d5}\u{5dd}";
    hostile
        .append("messages", [Message::human(SCRIPT), Message::ai(turned), Message::ai("x".repeat(1 << 20))])
        .unwrap();
    hostile.set("blob", "y".repeat(1 << 20)).unwrap();
    hostile.facts().title(SCRIPT).save().unwrap();
    let long = store.thread("long").unwrap();
    many_steps(&long, steps);
    let server = PageServer::bind(store.clone(), 0, options().allow_write(true)).unwrap();
    let server = std::sync::Arc::new(server);
    let running = std::sync::Arc::clone(&server);
    std::thread::spawn(move || running.run());
    server
}

/// Commits checkpoints that set a channel, a thousand at a time.
fn many_steps(thread: &Thread, steps: i64) {
    let store = thread.store();
    let mut parent = None;
    for first in (0..steps).step_by(1_000) {
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), parent);
        for n in first..(first + 1_000).min(steps) {
            let id = store.mint_checkpoint(n, parent.as_ref());
            let mut new = NewCheckpoint::new(id, parent.map(Parent::Local), n, Source::Update, store.now());
            let value = ChangeValue::Value(Data::New(Payload::from(Encoded::encode(&n).unwrap())));
            new.changes.push(Change::new("n", n as u64 + 1, value));
            batch.checkpoints.push(new);
            parent = Some(id);
        }
        store.commit(&batch).unwrap();
    }
}

/// The addresses of all screens, each with a text that it shows.
const SCREENS: [(&str, &str); 17] = [
    ("/", "Bern in May"),
    ("/t/trip", "by train"),
    ("/t/trip@by%20bus/talk", "The Gasthof zum B\u{e4}ren"),
    ("/t/trip/state", "plan"),
    ("/t/trip/state/plan/city", "Basel"),
    ("/t/trip/step", "changed"),
    ("/t/booking/step", "left saw"),
    ("/t/fan/step", "times within"),
    ("/t/trip/state/messages", "Gasthof"),
    ("/t/booking/graph", "transitions"),
    ("/t/trip/fork", "A new thread from here"),
    ("/diff/trip@by%20bus..trip", "last common ancestor"),
    ("/search?q=gasthof", "Gasthof"),
    ("/runs", "booking"),
    ("/stats", "by model"),
    ("/health", "write-ahead log"),
    ("/t/hostile/talk", "<script>document.title='owned'</script>"),
];

fn every_screen(browser: &Browser, base: &str) {
    for (address, text) in SCREENS {
        browser.open(&format!("{base}{address}"));
        assert!(browser.text("main").contains(text), "{address}: {}", browser.text("main"));
        assert_ne!(browser.title(), "owned", "{address}");
        assert_eq!(browser.errors(), Vec::<String>::new(), "{address}");
    }
}

/// Serves a store to a browser. Without chromedriver it says so, and nothing runs.
#[allow(clippy::print_stderr, reason = "a test")]
fn browse(javascript: bool, steps: i64, run: impl Fn(&Browser, &str, &Store)) {
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions::new().synchronous(Synchronous::Normal);
    let store = Store::open_with(folder.path().join("chats.db"), options).unwrap();
    let Some(browser) = Browser::start(javascript) else {
        eprintln!("skipped: chromedriver is not installed (Debian: apt-get install chromium chromium-driver)");
        return;
    };
    let server = server(&store, steps);
    browser.open(&server.link());
    run(&browser, &format!("http://{}", server.address()), &store);
}

#[test]
fn a_browser_without_javascript_shows_every_screen() {
    browse(false, 0, |browser, base, store| {
        every_screen(browser, base);
        keys_without_javascript(browser, base);
        without_javascript(browser, base, store);
    });
}

#[test]
fn a_browser_shows_every_screen() {
    browse(true, 0, |browser, base, store| {
        assert!(!browser.address().contains("token"), "the address does not hold the token: {}", browser.address());
        every_screen(browser, base);
        keyboard(browser, base);
        blame_and_copies(browser, base);
        live(browser, base, store);
        filled_form(browser, base, store);
    });
}

#[test]
fn every_screen_is_reached_by_keys() {
    browse(true, 0, |browser, base, _| keys_of_every_screen(browser, base));
}

#[test]
fn a_browser_pages_through_a_long_thread() {
    browse(true, steps(), |browser, base, _| long_thread(browser, base));
}

/// A resume value and a fork, by forms alone.
fn without_javascript(browser: &Browser, base: &str, store: &Store) {
    browser.open(&format!("{base}/runs?status=interrupted"));
    browser.keys("?");
    assert!(browser.all("details#keys[open]").is_empty(), "scripts are off");
    browser.open(&format!("{base}/t/trip@by%20bus/talk"));
    assert!(!browser.text("main").contains("copy as Markdown"), "a button that does nothing is hidden");
    browser.open(&format!("{base}/t/trip@by%20bus/talk?format=markdown"));
    assert!(browser.text("body").starts_with("# Bern in May"), "{}", browser.text("body"));
    browser.open(&format!("{base}/runs?status=interrupted"));
    browser.type_into("form[action*=\"booking\"] textarea", "{\"approved\": true}");
    browser.click("form.resume[action*=\"booking\"] button");
    browser.wait("the due run", |browser| browser.address() == format!("{base}/runs?status=running"));
    browser.open(&format!("{base}/t/trip/fork?name=by+plane&channel=plan&value=%22Rome%22"));
    browser.click("#make-fork");
    // A click may return before the form is sent.
    browser.wait("the fork", |browser| browser.address() == format!("{base}/t/by%20plane"));
    browser.wait("the origin of the fork", |browser| browser.text("main").contains("forked from"));
    answer_seats(browser, base);
    let plan = store.point("by plane").unwrap().get("plan").unwrap();
    assert_eq!(plan, Some("Rome".into()));
}

/// Answers the first of two questions of a thread.
fn answer_seats(browser: &Browser, base: &str) {
    browser.open(&format!("{base}/runs?status=interrupted"));
    browser.type_into("input[name=\"in.seats\"]", "3");
    browser.click("form.resume:has(input[name=\"in.seats\"]) button");
    browser.wait("the other interrupt", |browser| !browser.text("main").contains("How many?"));
    assert!(browser.text("main").contains("By which means?"));
}

/// From the threads to the difference of a step with its parent, without a mouse.
fn keyboard(browser: &Browser, base: &str) {
    browser.open(&format!("{base}/?title=bern"));
    browser.keys("j\u{e007}");
    browser.wait("the thread is open", |browser| browser.address().contains("/t/trip"));
    browser.wait("the steps are there", |browser| !browser.all("main [data-row]").is_empty());
    browser.keys("jjkd");
    browser.wait("the difference is open", |browser| browser.address().contains("/diff/"));
    browser.keys("g");
    browser.wait("the threads are there", |browser| browser.text("h1") == "Threads");
    browser.keys("/gasthof\u{e007}");
    browser.wait("the hits are there", |browser| browser.address().contains("/search?q=gasthof"));
    browser.open(&format!("{base}/t/trip"));
    browser.keys("t");
    browser.wait("the messages are there", |browser| browser.address().ends_with("/talk"));
    browser.keys("?");
    browser.wait("the keys are shown", |browser| !browser.all("details#keys[open]").is_empty());
}

/// The key of the writer, and buttons whose text is then pasted into the search box.
fn blame_and_copies(browser: &Browser, base: &str) {
    browser.open(&format!("{base}/t/trip/state/plan/city"));
    browser.keys("b");
    browser.wait("the writer is open", |browser| browser.text("nav.tabs").contains("step 1 "));
    browser.open(&format!("{base}/t/trip@by%20bus/talk"));
    browser.keys("jjb");
    browser.wait("the writer of the second message", |browser| browser.text("nav.tabs").contains("step 1 "));
    for (address, start) in
        [("/t/trip/state/plan/stops/0/name", "plan/stops/0/name"), ("/t/trip@by%20bus/talk", "# Bern in May")]
    {
        browser.open(&format!("{base}{address}"));
        browser.click("button.copy");
        browser.wait("the copy", |browser| !browser.all("#news:not([hidden])").is_empty());
        assert!(browser.text("#news").starts_with("copied: "), "{}", browser.text("#news"));
        browser.type_into("#search", "\u{e009}v\u{e000}");
        browser.wait("the text", |browser| browser.value("#search").starts_with(start));
    }
}

/// The keys of WebDriver: Enter, Escape and Tab.
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";

/// Search, help, and on each screen with links in rows the way along them and into one.
fn keys_of_every_screen(browser: &Browser, base: &str) {
    let mut walked = 0;
    for (address, _) in SCREENS {
        let url = format!("{base}{address}");
        browser.open(&url);
        browser.keys("/");
        browser.wait("the search box has the focus", |browser| browser.focused("id") == "search");
        browser.keys(ESCAPE);
        browser.wait("the search box is left", |browser| browser.focused("id") != "search");
        for is_open in [true, false] {
            browser.keys("?");
            browser.wait("the keys", |browser| browser.all("details#keys[open]").is_empty() != is_open);
        }
        let has_rows = !browser.all("[data-row] a, [data-row] summary, main tr a, main li a").is_empty();
        browser.keys("jjk");
        assert_eq!(browser.all(".on").len(), usize::from(has_rows), "the selected row of {address}");
        assert_eq!(browser.errors(), Vec::<String>::new(), "{address}");
        if has_rows {
            walked += 1;
            assert_eq!(browser.all(".on :focus").len(), 1, "the link of the selected row of {address}");
            let link = browser.focused("href");
            let is_open = !browser.all(".on details[open]").is_empty();
            browser.keys(ENTER);
            if browser.all("main").len() == 1 && link.is_empty() {
                browser.wait("the row is turned", |browser| browser.all(".on details[open]").is_empty() == is_open);
                continue;
            }
            browser.wait("the link is open", |browser| browser.address() != url || link == url);
            assert!(!browser.all("main").is_empty() && !browser.text("h1").starts_with('4'), "{address} to {link}");
        }
    }
    assert!(walked >= 12, "only {walked} screens have rows with links");
}

/// Without scripts the first Tab reaches the link past the head, and the form of the search works on every screen.
fn keys_without_javascript(browser: &Browser, base: &str) {
    for (address, _) in SCREENS {
        let url = format!("{base}{address}");
        // The jump to the content of the screen before may come after the command that opens this one.
        browser.wait("the screen is open", |browser| {
            browser.open(&url);
            browser.address() == url
        });
        browser.keys(TAB);
        assert_eq!(browser.focused("class"), "hide", "{address}");
        browser.keys(ENTER);
        browser.wait("the content is reached", |browser| browser.address() == format!("{url}#main"));
        browser.open(&url);
        browser.type_into("#search", &format!("\u{e009}a\u{e000}gasthof{ENTER}"));
        browser.wait("the hits", |browser| browser.address().contains("/search?q=gasthof"));
    }
}

fn long_thread(browser: &Browser, base: &str) {
    browser.open(&format!("{base}/t/long"));
    assert!(browser.text("main").contains("0,000 checkpoints"), "{}", browser.text("main"));
    assert_eq!(browser.all("main [data-row]").len(), 30);
    browser.click(".next a");
    browser.wait("older steps are there", |browser| {
        browser.address().contains("from=") && browser.all("main [data-row]").len() == 30
    });
    browser.open(&format!("{base}/t/long/step/77"));
    assert!(browser.text("main").contains("step 77"));
}

/// A message of another handle comes into the open document.
fn live(browser: &Browser, base: &str, store: &Store) {
    browser.open(&format!("{base}/t/trip/talk"));
    assert!(!browser.text("main").contains("It is live"));
    store.thread("trip").unwrap().append("messages", [Message::human("It is live")]).unwrap();
    browser.wait("the message is shown", |browser| browser.text("main").contains("It is live"));
    browser.wait("the thread is named", |browser| browser.text("#news").contains("live: trip"));
    // A change without a checkpoint; the selected row stays selected.
    browser.open(&format!("{base}/?title=bern"));
    browser.keys("j");
    assert_eq!(browser.focused("href"), "/t/trip");
    let trip = store.thread("trip").unwrap();
    let title = trip.info().unwrap().title().unwrap().to_owned();
    trip.facts().title("Bern by bus").save().unwrap();
    browser.wait("the title is shown", |browser| browser.text("main").contains("Bern by bus"));
    assert_eq!((browser.all(".on").len(), browser.focused("href")), (1, "/t/trip".into()));
    trip.facts().title(title).save().unwrap();
}

/// A choice that was made stays when new checkpoints come, and is stored by its form.
fn filled_form(browser: &Browser, base: &str, store: &Store) {
    answer_seats(browser, base);
    browser.click("form.resume:has(button[name=\"in.value\"]) + details summary");
    browser.type_into("form.resume:has(button[name=\"in.value\"]) + details textarea", "7");
    store.thread("trip").unwrap().append("messages", [Message::human("It is live again")]).unwrap();
    browser.wait("the news", |browser| browser.text("#news").contains("load the page again"));
    assert_eq!(browser.value("form.resume:has(button[name=\"in.value\"]) + details textarea"), "7");
    browser.click("form.resume button[name=\"in.value\"][value=\"1\"]");
    browser.wait("the due run", |browser| browser.address() == format!("{base}/runs?status=running"));
    let open = store.thread("order").unwrap().open_interrupts().unwrap();
    assert!(open.is_empty(), "{open:?}");
}
