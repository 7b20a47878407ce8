//! A site: documents and an index that are read without a server, in the file system and in Chromium.

use std::fs;
use std::path::Path;

use annals_page::{PageError, write_site};

use super::webdriver::Browser;
use super::*;

/// Returns the names of the files of a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn two_threads() -> Store {
    let store = Store::memory();
    trip(&store);
    let other = store.thread("a/b <c>").unwrap();
    other.append("messages", [Message::human("Hide <script>alert(1)</script>"), Message::ai("No.")]).unwrap();
    store.thread("bare").unwrap().set("n", 1).unwrap();
    store
}

#[test]
fn a_site_is_brought_up_to_date() {
    let (store, folder) = (two_threads(), tempfile::tempdir().unwrap());
    let site = folder.path().join("site");
    let first = write_site(&store, &site, "chats").unwrap();
    assert_eq!((first.threads, first.written, first.unchanged, first.removed), (3, 3, 0, 0));
    let documents = names(&site.join("t"));
    assert_eq!(documents.len(), 3, "{documents:?}");
    let index = read(&site.join("index.html"));
    for text in ["Bern in May", "<h3 class=\"of-project\" dir=\"auto\">travel</h3>", "Hide &lt;script&gt;", ">bare</a>"]
    {
        assert!(index.contains(text), "{text}: {index}");
    }
    for name in &documents {
        let document = read(&site.join("t").join(name));
        assert!(index.contains(&format!("href=\"t/{name}\"")) && !document.contains("<script"), "{name}: {document}");
        assert!(document.contains("href=\"../index.html\"") && document.contains("default-src &#39;none&#39;"));
    }
    let bare = documents.iter().find(|name| name.starts_with("bare-")).unwrap();
    assert!(read(&site.join("t").join(bare)).contains("(edited)"), "a thread without messages has its steps");

    let again = write_site(&store, &site, "chats").unwrap();
    assert_eq!((again.written, again.unchanged, again.removed), (0, 3, 0));
    store.thread("trip").unwrap().append("messages", [Message::human("And a boat")]).unwrap();
    store.thread("bare").unwrap().facts().title("Bare & named").save().unwrap();
    assert_eq!(write_site(&store, &site, "chats").unwrap().written, 2, "a fact is shown too");
    assert!(read(&site.join("index.html")).contains("Bare &amp; named"));
    store.thread("trip").unwrap().at("@").unwrap().fork_to("trip by boat").unwrap();
    assert_eq!(write_site(&store, &site, "chats").unwrap().written, 2, "the thread has a link to its fork");
    store.thread("trip by boat").unwrap().facts().archived(true).save().unwrap();
    assert_eq!(write_site(&store, &site, "chats").unwrap().removed, 1);
    store.thread("bare").unwrap().facts().archived(true).save().unwrap();
    fs::write(site.join("t").join("x.html.annals-unfinished"), "half").unwrap();
    let fewer = write_site(&store, &site, "chats").unwrap();
    assert_eq!((fewer.threads, fewer.unchanged, fewer.removed), (2, 2, 1));
    assert_eq!(names(&site.join("t")).len(), 2);
}

#[test]
fn a_file_of_somebody_else_is_not_touched() {
    let (store, folder) = (two_threads(), tempfile::tempdir().unwrap());
    let site = folder.path();
    fs::write(site.join("index.html"), "mine").unwrap();
    assert!(matches!(write_site(&store, site, "chats"), Err(PageError::ForeignFile { .. })));
    assert_eq!(names(site), ["index.html"], "nothing was written");
    fs::create_dir(site.join("t")).unwrap();
    for (name, own) in [("index.html", "mine"), ("notes.html", "<!doctype html>\n"), ("t/other.html", "mine too")] {
        fs::write(site.join(name), own).unwrap();
    }
    let refused = write_site(&store, site, "chats").unwrap_err();
    assert!(matches!(&refused, PageError::ForeignFile { path } if path.ends_with("index.html")), "{refused}");
    assert_eq!((read(&site.join("index.html")), names(&site.join("t"))), ("mine".into(), vec!["other.html".into()]));
    fs::remove_file(site.join("index.html")).unwrap();
    assert_eq!(write_site(&store, site, "chats").unwrap().written, 3);
    let document = site.join("t").join(names(&site.join("t")).iter().find(|name| name.starts_with("trip-")).unwrap());
    fs::write(&document, "rewritten by hand").unwrap();
    let refused = write_site(&store, site, "chats").unwrap_err();
    assert!(matches!(&refused, PageError::ForeignFile { path } if path.contains("trip-")), "{refused}");
    assert_eq!(read(&document), "rewritten by hand");
    assert_eq!((read(&site.join("notes.html")), read(&site.join("t/other.html"))).1, "mine too");
    let file = site.join("notes.html");
    assert!(matches!(write_site(&store, &file, "chats"), Err(PageError::Folder { .. })), "a file is no folder");
}

#[test]
fn an_index_has_pages_within_the_size_of_a_screen() {
    let (store, folder) = (Store::memory(), tempfile::tempdir().unwrap());
    for n in 0..250 {
        store.thread(format!("{n}-{}", "x".repeat(60))).unwrap().set("title", "<".repeat(100)).unwrap();
    }
    assert_eq!(write_site(&store, folder.path(), "many").unwrap().threads, 250);
    let pages: Vec<String> = names(folder.path()).into_iter().filter(|name| name.starts_with("index")).collect();
    assert_eq!(pages, ["index-2.html", "index-3.html", "index.html"]);
    let mut listed = 0;
    for name in &pages {
        let page = read(&folder.path().join(name));
        assert!(page.len() < 200 << 10, "{name}: {} bytes", page.len());
        listed += page.matches("class=\"thread\"").count();
    }
    assert_eq!(listed, 250);
    let second = read(&folder.path().join("index-2.html"));
    assert!(second.contains("href=\"index.html\"") && second.contains("href=\"index-3.html\""));
    for n in 0..200 {
        store.thread(format!("{n}-{}", "x".repeat(60))).unwrap().facts().archived(true).save().unwrap();
    }
    let fewer = write_site(&store, folder.path(), "many").unwrap();
    assert_eq!((fewer.threads, fewer.removed), (50, 202), "two pages of the index are gone as well");
}

/// The elements that would load something, and what was loaded.
const LOADED: &str = r"
const resources = performance.getEntriesByType('resource').map((entry) => entry.name);
const loading = [...document.querySelectorAll('script, link, img, iframe, object, video, audio, [style]')];
return resources.concat(loading.map((of) => of.outerHTML));
";

#[test]
fn a_browser_reads_a_site_without_a_server() {
    let Some(browser) = Browser::start(true) else {
        eprintln!("skipped: chromedriver is not installed (Debian: apt-get install chromium chromium-driver)");
        return;
    };
    let (store, folder) = (two_threads(), tempfile::tempdir().unwrap());
    write_site(&store, folder.path(), "chats").unwrap();
    let index = format!("file://{}/index.html", folder.path().display());
    for width in [1440, 390] {
        browser.resize(width, 844);
        browser.open(&index);
        for document in [None, Some("Bern in May"), Some("a/b <c>")] {
            if let Some(words) = document {
                browser.open(&index);
                let link = format!(
                    "return [...document.querySelectorAll('h3 a')].find((of) => of.textContent === '{words}' || of.title === '{words}').click()"
                );
                browser.run(&link);
                browser.wait("the document", |browser| browser.address().contains("/t/"));
                assert!(!browser.text("h1").is_empty());
            }
            assert_eq!(browser.run(LOADED), json!([]), "{document:?}");
            assert_eq!(browser.errors(), Vec::<String>::new(), "{document:?}");
            let sizes =
                browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]");
            assert_eq!(sizes[0], sizes[1], "{document:?} at {width} scrolls sideways");
            // The policy lets the style in.
            let family = browser.run("return getComputedStyle(document.body).fontFamily").to_string();
            assert!(family.contains("sans-serif"), "{family}");
        }
    }
    browser.run("document.querySelector('a[href=\"../index.html\"]').click()");
    browser.wait("the index", |browser| browser.address() == index);
}
