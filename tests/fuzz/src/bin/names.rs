//! Names that come from outside: ids, namespaces, points of a thread. Each is taken and shown as it is, or refused.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use annals::base::{CheckpointId, Namespace, RunId, TaskId, ThreadId};
use annals::history::{ImportOptions, Thread};
use annals::message::{MessageClass, parse_data_uri};
use annals_graph::prelude::*;
use libfuzzer_sys::fuzz_target;

fn check<T: FromStr<Err: Display> + Copy + PartialEq + Debug>(text: &str, shown: impl FnOnce(T) -> String) {
    match text.parse::<T>() {
        Ok(found) => assert_eq!(shown(found).parse::<T>().ok(), Some(found)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

thread_local! {
    static THREAD: Thread = {
        let thread = Store::memory().thread("fuzz").expect("a name");
        thread.import_messages(&ImportOptions::new(), &b"[]"[..]).expect("a list");
        thread
    };
}

fuzz_target!(|bytes: &[u8]| {
    let text = &*String::from_utf8_lossy(bytes);
    check(text, |id: CheckpointId| id.to_string());
    check(text, |id: TaskId| id.to_string());
    check(text, |id: RunId| id.to_string());
    check(text, |class: MessageClass| class.name().to_owned());
    if let Ok(id) = ThreadId::new(text) {
        assert_eq!(id.as_str(), text);
    }
    if let Ok(namespace) = Namespace::new(text) {
        assert_eq!((namespace.as_str(), namespace.is_root()), (text, text.is_empty()));
        assert!(namespace.segments().all(|segment| !segment.is_empty()));
    }
    if let Some(integer) = Value::from_digits(text) {
        assert_eq!(integer.kind(), "int");
        assert!(integer.big_integer().is_none_or(|digits| digits == text));
    }
    if let Some(uri) = parse_data_uri(text) {
        assert!(text.starts_with(&format!("data:{};base64,{}", uri.mime_type, uri.data)));
    }
    THREAD.with(|thread| match thread.at(text) {
        Ok(found) => {
            let digits = |text: &str| text.replace('-', "").to_lowercase();
            let is_prefix = text.contains(|c: char| c.is_ascii_hexdigit()) && !text.contains(['@', '~', '{']);
            assert!(!is_prefix || digits(&found.id().to_string()).starts_with(&digits(text)), "{text:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    });
});
