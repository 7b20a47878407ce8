//! A client of WebDriver: JSON over HTTP/1.1 to a chromedriver that the test started.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

/// Flags of a browser that runs as root and asks nothing of the network.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,800",
];

/// A process that is ended with the test.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A window of a browser.
pub(crate) struct Browser {
    driver: Driver,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts chromedriver and a browser; `None` if they are not installed.
    pub(crate) fn start(javascript: bool) -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.args(["--port=0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = Driver(command.spawn().ok()?);
        let mut lines = BufReader::new(driver.0.stdout.take()?).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok())?;
        // Its further lines are read, or it would wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let mut preferences = json!({});
        if !javascript {
            preferences = json!({ "profile.managed_default_content_settings.javascript": 2 });
        }
        let options = json!({ "args": FLAGS, "prefs": preferences });
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let mut browser = Self { driver, port, session: String::new() };
        let created = browser.call("POST", "/session", Some(&capabilities));
        browser.session = created["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {created}")).to_owned();
        Some(browser)
    }

    /// Sends a command and returns its value; fails the test if the answer is an error.
    fn call(&self, method: &str, path: &str, body: Option<&Json>) -> Json {
        let value = self.try_call(method, path, body);
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    /// Sends a command and returns its value, which may be an error.
    fn try_call(&self, method: &str, path: &str, body: Option<&Json>) -> Json {
        let body = body.map(Json::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n", self.port);
        write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut len = 0;
        for line in reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().unwrap();
            }
        }
        let mut bytes = vec![0; len];
        reader.read_exact(&mut bytes).unwrap();
        let mut answer: Json = serde_json::from_slice(&bytes).unwrap();
        answer["value"].take()
    }

    fn command(&self, method: &str, path: &str, body: Option<Json>) -> Json {
        self.call(method, &format!("/session/{}{path}", self.session), body.as_ref())
    }

    /// Opens an address.
    pub(crate) fn open(&self, url: &str) {
        self.command("POST", "/url", Some(json!({ "url": url })));
    }

    pub(crate) fn address(&self) -> String {
        self.command("GET", "/url", None).as_str().unwrap().to_owned()
    }

    pub(crate) fn title(&self) -> String {
        self.command("GET", "/title", None).as_str().unwrap().to_owned()
    }

    /// Runs a script in the page and returns its result.
    pub(crate) fn run(&self, script: &str) -> Json {
        self.command("POST", "/execute/sync", Some(json!({ "script": script, "args": [] })))
    }

    /// Returns the elements that a selector of CSS matches.
    pub(crate) fn all(&self, selector: &str) -> Vec<String> {
        let found = self.command("POST", "/elements", Some(json!({ "using": "css selector", "value": selector })));
        let id = |element: &Json| element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        found.as_array().unwrap().iter().map(id).collect()
    }

    /// Sends a command to the first element that a selector matches, and returns its value. A page that is loading has
    /// no such element yet, and one that is left makes the element stale: the command is then sent again, for minutes.
    fn element(&self, selector: &str, method: &str, path: &str, body: Option<&Json>) -> Json {
        for _ in 0..4_000 {
            if let Some(element) = self.all(selector).first() {
                let path = format!("/session/{}/element/{element}{path}", self.session);
                let value = self.try_call(method, &path, body);
                match value["error"].as_str() {
                    None => return value,
                    Some("stale element reference" | "no such element") => {}
                    Some(_) => panic!("{selector}: {value}"),
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{selector} matches nothing at {}", self.address())
    }

    /// Returns the visible text of an element.
    pub(crate) fn text(&self, selector: &str) -> String {
        self.element(selector, "GET", "/text", None).as_str().unwrap().to_owned()
    }

    /// Returns an attribute of the element that has the focus; an empty text if it has none.
    pub(crate) fn focused(&self, attribute: &str) -> String {
        let element = self.command("GET", "/element/active", None);
        let id = element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        let value = self.command("GET", &format!("/element/{id}/attribute/{attribute}"), None);
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Returns the content of an input.
    pub(crate) fn value(&self, selector: &str) -> String {
        self.element(selector, "GET", "/property/value", None).as_str().unwrap_or_default().to_owned()
    }

    /// Shows the pages as for a reader who prefers a colour scheme: `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.command("POST", "/goog/cdp/execute", Some(command));
    }

    /// Gives the window a size in pixels of the page.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let params = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": params });
        self.command("POST", "/goog/cdp/execute", Some(command));
    }

    pub(crate) fn click(&self, selector: &str) {
        self.element(selector, "POST", "/click", Some(&json!({})));
    }

    /// Types into an element.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        self.element(selector, "POST", "/value", Some(&json!({ "text": text })));
    }

    /// Types keys into the document. Chromium drops keys that come before the first paint, which a busy machine delays
    /// beyond the load.
    pub(crate) fn keys(&self, text: &str) {
        let paints = "return performance.getEntriesByType('paint').length";
        self.wait("the first paint", |browser| browser.run(paints).as_u64() > Some(0));
        let strokes: Vec<Json> = text
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() })))
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] });
        self.command("POST", "/actions", Some(actions));
    }

    /// Returns the visible part of the window as WebP, which is a quarter of a PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let params = json!({ "format": "webp", "quality": 82 });
        let command = json!({ "cmd": "Page.captureScreenshot", "params": params });
        decode(self.command("POST", "/goog/cdp/execute", Some(command))["data"].as_str().unwrap())
    }

    /// Returns the errors that the console shows, such as violations of the policy.
    pub(crate) fn errors(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", Some(json!({ "type": "browser" })));
        let severe = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }

    /// Waits until a condition holds.
    pub(crate) fn wait(&self, name: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..4_000 {
            if holds(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let shown: String = self.text("body").chars().take(2_000).collect();
        panic!("{name} did not happen at {}: {shown}", self.address());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.command("DELETE", "", None);
        }
        _ = self.driver.0.kill();
    }
}

/// Decodes Base64.
fn decode(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0);
    for value in text.bytes().filter_map(digit) {
        bits = bits << 6 | value;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    bytes
}
