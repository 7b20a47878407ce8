//! Encrypted stores: the command takes the key from a file.

use std::fs;

use annals::history::ImportOptions;
use annals::store::{Key, OpenOptions, Store};

use super::{Bench, code, document};

/// A key as one that is drawn.
const KEY: [u8; 32] = {
    let (mut key, mut n) = ([0; 32], 0);
    while n < 32 {
        key[n] = (n as u8 + 1) * 7;
        n += 1;
    }
    key
};

/// Writes a file that its owner alone can read.
fn key_file(bench: &Bench, name: &str, bytes: &[u8]) {
    fs::write(bench.path(name), bytes).unwrap();
    permit(&bench.path(name), 0o600);
}

#[cfg(unix)]
fn permit(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[cfg(not(unix))]
fn permit(_: &std::path::Path, _: u32) {}

fn store(bench: &Bench, name: &str, options: OpenOptions) {
    let store = Store::open_with(bench.path(name), options).unwrap();
    let text = r#"[{"type": "human", "content": "the secret text"}]"#;
    store.thread("alice").unwrap().import_messages(&ImportOptions::new(), text.as_bytes()).unwrap();
}

#[test]
fn a_store_with_a_key_is_read_with_its_key_file_alone() {
    let bench = Bench::new();
    let key = || Key::new(KEY);
    store(&bench, "sealed.db", OpenOptions::new().key(key()));
    store(&bench, "keyed.db", OpenOptions::new().checksum_key(key()));
    store(&bench, "plain.db", OpenOptions::new());
    let drawn: String = (1..=32).map(|n| format!("{:02x}", n * 7)).collect();
    key_file(&bench, "key", (drawn + "\n").as_bytes());
    key_file(&bench, "other", &std::array::from_fn::<u8, 32, _>(|n| n as u8));
    key_file(&bench, "short", &[7; 31]);
    for name in ["sealed.db", "keyed.db"] {
        let shown = bench.annals_on(name, &["export", "alice", "--key-file", "key"]);
        assert!(code(&shown) == 0 && String::from_utf8_lossy(&shown.stdout).contains("the secret text"), "{shown:?}");
        assert_eq!(code(&bench.annals_on(name, &["check", "--key-file", "key"])), 0);
        let to = format!("recovered-{name}");
        assert_eq!(code(&bench.annals(&["recover", name, &to])), 2, "its key is missing");
        assert_eq!(code(&bench.annals(&["recover", name, &to, "--key-file", "key"])), 0);
        let shown = bench.annals_on(&to, &["export", "alice", "--key-file", "key"]);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("the secret text"), "{shown:?}");
        for (given, slug) in [
            (&[][..], "key_required"),
            (&["--key-file", "other"], "wrong_key"),
            (&["--key-file", "short"], "usage"),
            (&["--key-file", "missing"], "usage"),
        ] {
            let refused = bench.annals_on(name, &[&["threads", "--json"], given].concat());
            assert_eq!(code(&refused), 2);
            assert_eq!(document(&refused.stderr)["error"]["code"], slug, "{name} {given:?}");
        }
    }
    let refused = bench.annals_on("plain.db", &["threads", "--json", "--key-file", "key"]);
    assert_eq!(document(&refused.stderr)["error"]["code"], "not_keyed");
    fs::write(bench.path("chat.json"), r#"[{"type": "human", "content": "the secret text"}]"#).unwrap();
    let import = ["import", "chat.json", "--name", "bob", "--key-file", "key"];
    assert_eq!(code(&bench.annals_on("new.db", &import)), 0);
    let bytes = fs::read(bench.path("new.db")).unwrap();
    assert!(!bytes.windows(15).any(|window| window == b"the secret text"));
}

#[test]
fn a_thread_file_has_the_key_of_its_store() {
    let bench = Bench::new();
    store(&bench, "sealed.db", OpenOptions::new().key(Key::new(KEY)));
    store(&bench, "plain.db", OpenOptions::new());
    key_file(&bench, "key", &KEY);
    let export = ["export", "alice", "--format", "thread", "-o"];
    let keyed = ["--key-file", "key"];
    assert_eq!(code(&bench.annals_on("sealed.db", &[&export[..], &["a.db"], &keyed].concat())), 0);
    let bytes = fs::read(bench.path("a.db")).unwrap();
    assert!(!bytes.windows(15).any(|window| window == b"the secret text"));
    assert_eq!(code(&bench.annals_on("plain.db", &[&export[..], &["b.db"]].concat())), 0);
    assert_eq!(code(&bench.annals_on("new.db", &["import", "a.db"])), 2, "its key is missing");
    for file in ["a.db", "b.db"] {
        let import = [&["import", file, "--name", file], &keyed[..]].concat();
        assert_eq!(code(&bench.annals_on("new.db", &import)), 0, "{file}");
        let shown = bench.annals_on("new.db", &[&["export", file], &keyed[..]].concat());
        assert!(String::from_utf8_lossy(&shown.stdout).contains("the secret text"), "{shown:?}");
    }
    let bytes = fs::read(bench.path("new.db")).unwrap();
    assert!(!bytes.windows(15).any(|window| window == b"the secret text"));
}

#[test]
fn a_key_file_that_others_read_or_that_was_not_drawn_at_random_is_refused() {
    let bench = Bench::new();
    store(&bench, "sealed.db", OpenOptions::new().key(Key::new(KEY)));
    key_file(&bench, "zeros", &[0; 32]);
    key_file(&bench, "typed", b"a password with 31 characters !\n");
    key_file(&bench, "key", &KEY);
    let told = |file: &str| {
        let refused = bench.annals_on("sealed.db", &["threads", "--json", "--key-file", file]);
        (code(&refused), document(&refused.stderr)["error"]["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(told("zeros"), (2, "key_not_random".into()));
    assert_eq!(told("typed"), (2, "key_not_random".into()));
    if cfg!(unix) {
        for mode in [0o644, 0o640, 0o602] {
            permit(&bench.path("key"), mode);
            assert_eq!(told("key"), (2, "key_exposed".into()), "{mode:o}");
        }
        permit(&bench.path("key"), 0o400);
    }
    assert_eq!(code(&bench.annals_on("sealed.db", &["threads", "--key-file", "key"])), 0);
}
