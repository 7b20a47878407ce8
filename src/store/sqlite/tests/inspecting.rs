//! Inspection: the header of a file and the files beside it name its kind, before anything is changed.
#![cfg(unix)]

use super::*;
use crate::store::StoreError;
use crate::store::sqlite::file::inspect::{FileKind, inspect, make, verify_open};
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::{registry, system};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

/// A folder with a closed store, and its bytes.
fn closed() -> (TempDir, PathBuf, Vec<u8>) {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![value("x", 1, plain(&[7; 99]))]);
    let path = bench.path();
    let Bench { folder, store, .. } = bench;
    drop(store);
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

/// Writes a file that its owner alone may use. A new one may have the number of a store that another test removed, and
/// that counts as open until its handle is closed.
fn place(path: &Path, bytes: &[u8]) {
    let is_new = !path.exists();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    if is_new {
        until("no handle of a removed store has the number of a new file", || !registry::is_open(path));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[track_caller]
fn refused(result: Result<impl std::fmt::Debug, StoreError>, why: &str) {
    let error = result.unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_path_is_missing_only_if_nothing_else_is_wrong_with_it() {
    let (folder, path, _) = closed();
    assert_eq!(inspect(&path).unwrap(), FileKind::Store);
    assert_eq!(inspect(&folder.path().join("none.db")).unwrap(), FileKind::Missing);
    // A file is not a folder.
    assert!(matches!(inspect(&path.join("x.db")), Err(StoreError::Open { .. })));
    let empty = folder.path().join("empty.db");
    fs::write(&empty, b"").unwrap();
    assert_eq!(inspect(&empty).unwrap(), FileKind::Empty);
    fs::hard_link(&path, folder.path().join("link.db")).unwrap();
    refused(inspect(&path), "2 names");
}

#[test]
fn the_first_name_of_a_copy_whose_process_ended_is_taken_away() {
    let (folder, path, _) = closed();
    let unfinished = beside(&path, "-unfinished");
    fs::hard_link(&path, &unfinished).unwrap();
    let third = folder.path().join("third.db");
    fs::hard_link(&path, &third).unwrap();
    refused(inspect(&path), "it has 2 names");
    assert!(!unfinished.exists());
    // Another file with this name is left.
    fs::write(&unfinished, b"x").unwrap();
    refused(inspect(&path), "it has 2 names");
    assert!(unfinished.exists());
    fs::remove_file(&unfinished).unwrap();
    fs::remove_file(&third).unwrap();
    fs::hard_link(&path, &unfinished).unwrap();
    drop(SqliteBackend::open(&path, &options()).unwrap());
    assert_eq!((unfinished.exists(), inspect(&path).unwrap()), (false, FileKind::Store));
}

#[test]
fn a_log_without_a_file_is_refused_if_it_holds_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let wal = beside(&path, "-wal");
    place(&wal, b"");
    assert_eq!(inspect(&path).unwrap(), FileKind::Missing);
    place(&wal, b"frames");
    let error = inspect(&path).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { reason, .. } if reason.contains("holds 6 bytes")), "{error}");
    fs::remove_file(&wal).unwrap();
    // A folder is not a log.
    fs::create_dir(&wal).unwrap();
    assert!(matches!(inspect(&path), Err(StoreError::Open { .. })));
    refused(inspect(&path), "is not a regular file");
    fs::remove_dir(&wal).unwrap();
    symlink("target", &wal).unwrap();
    assert!(matches!(inspect(&path), Err(StoreError::Open { .. })));
}

#[test]
fn what_lies_beside_a_store_is_a_file_of_one_name_and_as_strict() {
    let (folder, path, _) = closed();
    for suffix in ["-wal", "-shm", "-journal"] {
        let name = beside(&path, suffix);
        let target = folder.path().join("target");
        place(&target, b"");
        fs::hard_link(&target, &name).unwrap();
        refused(inspect(&path), "has more than one name (hard links)");
        fs::remove_file(&target).unwrap();
        assert_eq!(inspect(&path).unwrap(), FileKind::Store, "{suffix}");
        fs::set_permissions(&name, Permissions::from_mode(0o664)).unwrap();
        assert_eq!(inspect(&path).unwrap(), FileKind::Store, "{suffix}");
        assert_eq!(mode(&name), 0o600, "{suffix}");
        fs::remove_file(&name).unwrap();
    }
}

#[test]
fn a_file_is_made_for_its_owner_and_one_that_is_there_is_left_as_it_is() {
    let (folder, path, bytes) = closed();
    // Another process was faster.
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    make(&path, FileKind::Missing).unwrap();
    assert_eq!((fs::read(&path).unwrap(), mode(&path)), (bytes, 0o640));
    let new = folder.path().join("new.db");
    make(&new, FileKind::Missing).unwrap();
    assert_eq!((fs::metadata(&new).unwrap().len(), mode(&new)), (0, 0o600));
    fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
    make(&new, FileKind::Empty).unwrap();
    assert_eq!(mode(&new), 0o600);
    make(&new, FileKind::Empty).unwrap();
    assert_eq!(mode(&new), 0o600);
    assert!(matches!(make(&folder.path().join("no/x.db"), FileKind::Missing), Err(StoreError::Open { .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_refuses_a_new_file_is_told_with_its_reason() {
    // No user may make a file there.
    let path = Path::new("/sys/annals-inspecting.db");
    if path.parent().is_some_and(Path::exists) {
        let error = make(path, FileKind::Missing).unwrap_err();
        assert!(!error.to_string().contains("No such file"), "{error}");
    }
}

#[test]
fn a_file_is_verified_again_once_it_is_open() {
    let (folder, path, bytes) = closed();
    let id = |path: &Path| system::id(&fs::metadata(path).unwrap());
    let other = folder.path().join("other.db");
    place(&other, &bytes);
    verify_open(&path, id(&path)).unwrap();
    refused(verify_open(&path, id(&other)), "it was replaced while it was opened");
    let link = folder.path().join("link.db");
    fs::hard_link(&path, &link).unwrap();
    refused(verify_open(&path, id(&path)), "it was replaced while it was opened");
    fs::remove_file(&link).unwrap();
    let wal = beside(&path, "-wal");
    symlink("target", &wal).unwrap();
    refused(verify_open(&path, id(&path)), "is not a regular file");
    fs::remove_file(&wal).unwrap();
    verify_open(&path, id(&path)).unwrap();
}

#[test]
fn a_header_tells_what_a_file_is() {
    let (folder, path, bytes) = closed();
    let copy = folder.path().join("copy.db");
    let (wal, journal) = (beside(&copy, "-wal"), beside(&copy, "-journal"));
    let of = |bytes: &[u8]| {
        place(&copy, bytes);
        inspect(&copy)
    };
    assert_eq!(of(&bytes).unwrap(), FileKind::Store);
    refused(of(&bytes[..99]), "it is shorter than the header");
    assert!(
        matches!(of(&bytes[..100]), Err(StoreError::Corrupt { .. })),
        "a header without a page is a part of a file"
    );
    let cut = &bytes[..bytes.len() - 4_096];
    refused(of(cut), "it was cut short");
    let zeros = vec![0; 8_192];
    refused(of(&zeros), "move it away and open it again");
    // An empty log has no page of the file, another one may have all.
    place(&wal, b"");
    refused(of(&zeros), "move it away and open it again");
    refused(of(cut), "it was cut short");
    place(&wal, b"x");
    refused(of(&zeros), "it is not a SQLite file");
    assert_eq!(of(cut).unwrap(), FileKind::Store);
    fs::remove_file(&wal).unwrap();
    // The journal of a first commit empties the file.
    place(&journal, b"x");
    assert_eq!(of(&zeros).unwrap(), FileKind::Empty);
    refused(of(&bytes), "is not a journal of it");
    place(&journal, b"");
    assert_eq!(of(&bytes).unwrap(), FileKind::Store);
    assert_eq!(inspect(&path).unwrap(), FileKind::Store);
}

/// Writes a journal of so many bytes that was begun when its file had so many pages.
fn place_journal(path: &Path, length: usize, pages: &[u8]) {
    let mut content = vec![0; length];
    content[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    content[16..20].copy_from_slice(pages);
    place(path, &content);
}

#[test]
fn a_journal_of_a_switch_holds_one_page() {
    let (_folder, path, bytes) = closed();
    let journal = beside(&path, "-journal");
    // A sector, and a page with its number and its checksum.
    let one_page = 4_096 + 4_096 + 8;
    for (is_held, why) in [(false, "is not a journal of it"), (true, "may be the journal of another file")] {
        let _held = is_held.then(|| File::open(&path).unwrap());
        let of = |length: usize, pages: &[u8]| {
            place_journal(&journal, length, pages);
            inspect(&path)
        };
        for length in [20, 512 + 4_096 + 8, one_page] {
            assert_eq!(of(length, &bytes[28..32]).unwrap(), FileKind::Store, "{length}");
        }
        refused(of(one_page + 1, &bytes[28..32]), why);
        refused(of(one_page, &[0, 0, 0, 1]), why);
    }
}

#[test]
fn a_foreign_journal_is_not_replayed_into_a_store_that_this_process_has_open() {
    let (_folder, path, bytes) = closed();
    let _held = File::open(&path).unwrap();
    let journal = beside(&path, "-journal");
    // Three pages of zeros in the places of pages 3 to 5, in sectors of 512 bytes.
    place_journal(&journal, 512 + 3 * 4_104, &bytes[28..32]);
    let mut content = fs::read(&journal).unwrap();
    content[8..12].copy_from_slice(&3_u32.to_be_bytes());
    content[20..24].copy_from_slice(&512_u32.to_be_bytes());
    content[24..28].copy_from_slice(&4_096_u32.to_be_bytes());
    for nth in 0..3 {
        let at = 512 + nth * 4_104;
        content[at..at + 4].copy_from_slice(&(nth as u32 + 3).to_be_bytes());
    }
    place(&journal, &content);
    refused(SqliteBackend::open(&path, &options()).map(drop), "may be the journal of another file");
    assert!(fs::read(&path).unwrap() == bytes, "the file is as it was");
    fs::remove_file(&journal).unwrap();
    assert_eq!(SqliteBackend::open(&path, &options()).unwrap().check().unwrap().problems, []);
}

#[test]
fn a_file_that_this_process_has_open_is_inspected_through_sqlite() {
    let (folder, path, bytes) = closed();
    let _held = File::open(&path).unwrap();
    let journal = beside(&path, "-journal");
    assert_eq!(inspect(&path).unwrap(), FileKind::Store);
    place(&journal, b"");
    assert_eq!(inspect(&path).unwrap(), FileKind::Store);

    let mut foreign = bytes.clone();
    foreign[..16].copy_from_slice(b"not a database!!");
    let cut = bytes[..bytes.len() / 2].to_vec();
    for (name, bytes, may_be_in_the_log) in [("cut.db", cut, true), ("foreign.db", foreign, false)] {
        let path = folder.path().join(name);
        place(&path, &bytes);
        let _held = File::open(&path).unwrap();
        let wal = beside(&path, "-wal");
        inspect(&path).unwrap_err();
        place(&wal, b"");
        inspect(&path).unwrap_err();
        place(&wal, b"x");
        assert_eq!(inspect(&path).is_ok(), may_be_in_the_log, "{name}: {:?}", inspect(&path));
    }
}
