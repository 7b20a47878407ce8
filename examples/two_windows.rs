//! Two windows on one file: a second process writes to the thread that this one shows, is followed as it commits, and
//! loses no answer when both write at once.
//!
//! Run it with `cargo run -p annals --example two_windows`; the second process is the same program with arguments.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use annals::history::OnConflict;
use annals::prelude::*;
use annals::store::ItemRange;

/// The second window: it appends an answer.
fn second_window(path: &Path) -> Result<()> {
    let chat = Store::open(path)?.thread("trip")?;
    chat.append("messages", [Message::ai("The Gasthof Adler has rooms.")])?;
    chat.append("messages", [Message::ai("Shall I book one?")])?;
    Ok(())
}

fn show(snapshot: &Snapshot) -> Result<()> {
    for message in snapshot.messages("messages", ItemRange::Tail(1))? {
        println!("  {:>5}: {}", message.kind(), message.text());
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    if let Some(path) = std::env::args().nth(1) {
        return Ok(second_window(Path::new(&path))?);
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("chats.db");
    let store = Store::open(&path)?;
    let chat = store.thread("trip")?;
    let asked = chat.append("messages", [Message::human("A hotel in Bern, please")])?;

    // From here on every commit to the thread is shown, whichever process makes it.
    let mut watch = chat.watch()?;
    let mut second = Command::new(std::env::current_exe()?).arg(&path).spawn()?;
    println!("from the other window:");
    for _ in 0..2 {
        let new = watch.next(Duration::from_secs(20))?.expect("the other window commits twice");
        show(&new)?;
    }
    assert!(second.wait()?.success());

    // This window answers the question that it saw. The head has moved: the write is refused, or stored as a branch.
    let answer = || chat.write().append("messages", [Message::ai("The Hotel Kreuz has rooms.")]).on_head(Some(asked));
    let late = answer().commit().expect_err("the other window was faster");
    assert!(late.is_conflict());
    println!("refused: {late}");
    let stored = answer().on_conflict(OnConflict::Branch).commit()?;
    let branch = chat.branches()?.into_iter().find(|branch| branch.last.id() == stored).expect("it has a name");
    println!("retained as the branch {:?}:", branch.name.as_deref().unwrap_or_default());
    show(&branch.last)?;
    assert_eq!(chat.at("@")?.len("messages")?, 3, "the head is that of the other window");

    // A follower that stores its position goes on there after a restart.
    let position = watch.position();
    drop(watch);
    let missed = chat.watch_from(position)?.next(Duration::ZERO)?.expect("the branch was committed meanwhile");
    assert_eq!(missed.id(), stored);
    Ok(())
}
