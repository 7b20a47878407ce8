//! Opening creates or refuses a file, and a refused file is not changed.

use super::*;
use crate::store::StoreError;
use std::fs;

fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A closed store with one checkpoint.
fn closed() -> (TempDir, PathBuf, CheckpointId) {
    let mut bench = Bench::new();
    let id = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "kept")])]);
    let path = bench.path();
    drop(bench.store);
    (bench.folder, path, id)
}

#[cfg(unix)]
#[test]
fn a_new_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, Vec::new());
    for name in names(&bench.folder) {
        let mode = fs::metadata(bench.folder.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // An empty file of this user becomes one.
    for mode in [0o666, 0o644, 0o200] {
        let path = bench.folder.path().join("empty.db");
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        drop(open(&path));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{mode:o}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_is_no_store_is_refused_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.db");
    let conn = raw(&other);
    conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE x (y); INSERT INTO x VALUES (1);").unwrap();
    drop(conn);
    let (_kept, store, _) = closed();
    let whole = fs::read(&store).unwrap();
    let mut newer = whole.clone();
    newer[63] = 3;
    let mut garbage = whole.clone();
    garbage[..16].copy_from_slice(b"not a database!!");
    let cases = [
        ("text.db", b"hello".to_vec()),
        ("long.db", vec![b'x'; 10_000]),
        ("zeros.db", vec![0; 8_192]),
        ("other-copy.db", fs::read(&other).unwrap()),
        ("short.db", whole[..60].to_vec()),
        ("half.db", whole[..whole.len() / 2].to_vec()),
        ("newer.db", newer),
        ("garbage.db", garbage),
    ];
    for (name, bytes) in cases {
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        for options in [options(), options().read_only(true), options().create(false)] {
            let error = SqliteBackend::open(&path, &options).unwrap_err();
            match name {
                "newer.db" => assert!(matches!(error, StoreError::NewerFormat { found: 3, .. }), "{name}: {error}"),
                "half.db" => assert!(matches!(error, StoreError::Corrupt { .. }), "{name}: {error}"),
                _ => assert!(matches!(error, StoreError::NotAStore { .. }), "{name}: {error}"),
            }
            assert_eq!(fs::read(&path).unwrap(), bytes, "{name}");
        }
    }
    assert!(names(&folder).iter().all(|name| name.ends_with(".db")), "{:?}", names(&folder));
    assert!(matches!(SqliteBackend::open(folder.path(), &options()), Err(StoreError::Open { .. })));
}

#[test]
fn an_empty_file_is_made_a_store_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    fs::write(&path, b"").unwrap();
    for options in [options().create(false), options().read_only(true)] {
        assert!(matches!(SqliteBackend::open(&path, &options), Err(StoreError::NotAStore { .. })));
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
    open(&path).checkpoint_wal().unwrap();
    let missing = folder.path().join("missing.db");
    for options in [options().create(false), options().read_only(true)] {
        assert!(matches!(SqliteBackend::open(&missing, &options), Err(StoreError::Open { .. })));
    }
    let nowhere = folder.path().join("no/such/folder.db");
    assert!(matches!(SqliteBackend::open(&nowhere, &options()), Err(StoreError::Open { .. })));
    assert_eq!(names(&folder), ["x.db"]);
}

#[test]
fn a_reader_leaves_nothing_and_sees_what_others_write() {
    let (folder, path, id) = closed();
    let t = thread("a");
    let before = fs::read(&path).unwrap();
    let reader = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
    assert_eq!(items(&reader, &at(&t, id), ItemRange::All), [(0, "kept".to_string())]);
    drop(reader);
    assert_eq!((names(&folder), fs::read(&path).unwrap()), (vec!["x.db".to_owned()], before));
    let reader = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
    let batch = Batch::new(t.clone(), Namespace::root(), Some(id));
    assert!(matches!(reader.commit(&batch), Err(StoreError::ReadOnly)));
    assert!(matches!(reader.submit(batch).wait(), Err(StoreError::ReadOnly)));
    let mut bench = Bench { store: open(&path), folder, ids: IdSource::from_seed(1) };
    let next = bench.add(&t, Some(id), vec![list(2, vec![put(1, "more")])]);
    assert_eq!(reader.head_id(&t, &Namespace::root()).unwrap(), Some(next));
    assert_eq!(items(&reader, &at(&t, next), ItemRange::All).len(), 2);
    assert_eq!(reader.check().unwrap().problems, []);
}

#[test]
fn several_handles_may_make_one_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    std::thread::scope(|scope| {
        for n in 0..6_u64 {
            let path = &path;
            scope.spawn(move || {
                let store = open(path);
                let id = IdSource::from_seed(n).checkpoint(Timestamp::from_micros(1), 0, None);
                let mut batch = Batch::new(thread(&format!("t{n}")), Namespace::root(), None);
                batch.checkpoints.push(checkpoint(id));
                store.commit(&batch).unwrap();
            });
        }
    });
    let report = open(&path).check().unwrap();
    assert_eq!((report.threads, report.problems), (6, Vec::new()));
}

#[cfg(unix)]
#[test]
fn odd_paths_and_symbolic_links_lead_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a #? %41.db");
    let link = folder.path().join("link.db");
    drop(open(&path));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let reader = SqliteBackend::open(&link, &options().read_only(true)).unwrap();
    assert!(reader.threads(None, 9).unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn a_part_of_a_file_that_was_never_made_is_refused_with_advice() {
    let (folder, path, _) = closed();
    let whole = fs::read(&path).unwrap();
    let left = folder.path().join("left.db");
    // As a cut leaves it: a size without the first page, or pages of a file that was not switched to a WAL yet.
    let mut unswitched = whole[..whole.len() - 8_192].to_vec();
    unswitched[18..20].copy_from_slice(&[1, 1]);
    let cut = whole[..whole.len() - 8_192].to_vec();
    for (content, is_advised) in [(vec![0; 40_960], true), (unswitched, true), (cut, false)] {
        fs::write(&left, &content).unwrap();
        restrict(&left);
        let error = SqliteBackend::open(&left, &options()).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. } | StoreError::Corrupt { .. }), "{error}");
        assert_eq!(error.to_string().contains("move it away and open it again"), is_advised, "{error}");
        assert!(fs::read(&left).unwrap() == content, "it is not changed");
        fs::remove_file(&left).unwrap();
    }
}

/// Lets only the owner of a file use it.
#[cfg(unix)]
fn restrict(path: &Path) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}
