//! Waits for a lock of another process, within a limit, and names the process that holds it.
//!
//! SQLite's own busy handler sleeps up to 100 ms between two attempts, while others commit every 0.3 ms: a process that
//! came late waited for all others. Here the pauses are short and random, and shorter after a long wait. A
//! connection that writes has no busy handler at all, and its steps are repeated here. *Absent:* an order of arrival,
//! which transactions get from [`LockQueue`](super::lock_queue::LockQueue).

use super::paths::beside;
use crate::base::internal::Stopwatch;
use crate::limits::{
    LOCK_FRONT_PAUSE, LOCK_LISTING_BYTES, LOCK_LISTINGS_MAX, LOCK_RETRY_MAX, LOCK_RETRY_MIN, LOCK_WAIT_LONG,
};
use crate::store::sqlite::fault::{Res, found_busy};
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// The byte of the `-shm` file whose lock is the write lock of a WAL.
const WRITE_LOCK_BYTE: u64 = 120;

/// A wait in short pauses.
#[derive(Debug)]
pub(crate) struct LockWait {
    start: Stopwatch,
    limit: Duration,
    /// The longest that the next pause may be.
    pause: Duration,
    /// The longest that each pause may be.
    longest: Duration,
    random: RandomState,
}

impl LockWait {
    /// Begins a wait of at most so long.
    pub(crate) fn new(limit: Duration) -> Self {
        let start = Stopwatch::start();
        Self { start, limit, pause: LOCK_RETRY_MIN, longest: LOCK_RETRY_MAX, random: RandomState::new() }
    }

    /// Keeps the pauses short, for the process at the front of the queue: the others do not attempt meanwhile.
    pub(crate) fn of_front(self) -> Self {
        Self { pause: LOCK_FRONT_PAUSE, longest: LOCK_FRONT_PAUSE, ..self }
    }

    /// Sleeps until the next attempt; returns `false` without a sleep once the limit is over.
    pub(crate) fn pause(&mut self) -> bool {
        let waited = self.start.elapsed();
        if waited >= self.limit {
            return false;
        }
        std::thread::sleep(self.next_pause(waited).min(self.limit - waited));
        true
    }

    /// Returns a random pause between a third and the whole of the longest one, which doubles up to its limit and
    /// becomes shorter again for a wait of more than 100 ms: the longer a process has waited, the better is its chance.
    fn next_pause(&mut self, waited: Duration) -> Duration {
        let third = self.pause / 3;
        self.pause = (2 * self.pause).min(self.longest);
        if waited > LOCK_WAIT_LONG {
            let share = LOCK_WAIT_LONG.as_secs_f64() / waited.as_secs_f64();
            // If all have waited long, shorter pauses would take the time of the process that commits.
            self.pause = self.longest.mul_f64(share).max(self.longest / 2);
        }
        let random = self.random.hash_one(waited) % (2 * third.as_nanos() as u64 + 1);
        third + Duration::from_nanos(random)
    }
}

/// Repeats a step that finds a lock taken, for at most so many milliseconds.
pub(crate) fn wait_for<T>(limit_ms: u64, step: impl FnMut() -> Res<T>) -> Res<T> {
    repeat(LockWait::new(Duration::from_millis(limit_ms)), step)
}

/// Repeats a step that finds a lock taken, until the wait is over.
pub(crate) fn repeat<T>(mut wait: LockWait, mut step: impl FnMut() -> Res<T>) -> Res<T> {
    let first = step();
    if !found_busy(&first) {
        return first;
    }
    while wait.pause() {
        let result = step();
        if !found_busy(&result) {
            return result;
        }
    }
    first
}

/// Returns the process that holds the write lock of a store, if the operating system tells it.
pub(crate) fn holder(path: &Path) -> Option<u32> {
    let file = device_and_inode(&beside(path, "-shm"))?;
    holder_of(&file, listing)
}

/// Finds the process in one of a few listings: a lock that is released while one is read hides the one after it.
fn holder_of(file: &str, mut listing: impl FnMut() -> Option<String>) -> Option<u32> {
    (0..LOCK_LISTINGS_MAX).find_map(|_| holder_in(&listing()?, file))
}

/// Returns whether a process holds a lock on a file or on its shared memory, if the operating system tells it. SQLite
/// holds one for each connection.
pub(crate) fn is_in_use(path: &Path) -> bool {
    let Some(listing) = listing() else { return false };
    let files = [path.to_owned(), beside(path, "-shm")];
    files.iter().filter_map(|file| device_and_inode(file)).any(|place| listing.contains(&place))
}

/// Returns the listing of all locks. Opening the file itself and closing it again would drop those of this process.
fn listing() -> Option<String> {
    // The kernel continues each read at a line number, so a lock that is released in between hides the one after it:
    // a long buffer takes few reads.
    let mut text = String::with_capacity(LOCK_LISTING_BYTES);
    std::fs::File::open("/proc/locks").ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(target_os = "linux")]
fn device_and_inode(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok()?;
    Some(place_of(meta.dev(), meta.ino()))
}

/// Returns the place of a file as the listing of all locks shows it.
#[cfg(target_os = "linux")]
fn place_of(device: u64, inode: u64) -> String {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & 0xffff_f000);
    let minor = (device & 0xff) | ((device >> 12) & 0xffff_ff00);
    format!("{major:02x}:{minor:02x}:{inode}")
}

#[cfg(not(target_os = "linux"))]
fn device_and_inode(_path: &Path) -> Option<String> {
    None
}

/// Finds the process in lines as `4: POSIX  ADVISORY  WRITE 4711 fe:00:81 120 120`.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[_, "POSIX", _, "WRITE", process, place, first, last] = fields.as_slice() else { return None };
        let covers = first.parse::<u64>().ok()? <= WRITE_LOCK_BYTE
            && (last == "EOF" || last.parse::<u64>().ok()? >= WRITE_LOCK_BYTE);
        // 0 stands for a process in another namespace of processes.
        process.parse().ok().filter(|process| covers && place == file && *process > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::fault::Fault;

    fn busy() -> Res<()> {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        Err(Fault::Sql(rusqlite::Error::SqliteFailure(code, None)))
    }

    #[test]
    fn pauses_are_short_and_random() {
        let mut wait = LockWait::new(Duration::from_secs(1));
        let pauses: Vec<Duration> = (0..64).map(|n| wait.next_pause(Duration::from_nanos(n))).collect();
        assert!(pauses.iter().all(|pause| (LOCK_RETRY_MIN / 3..=LOCK_RETRY_MAX).contains(pause)), "{pauses:?}");
        assert!(pauses[0] <= LOCK_RETRY_MIN);
        assert!(pauses[8..].iter().any(|pause| pause < &(LOCK_RETRY_MAX / 2)), "{pauses:?}");
        assert!(pauses[8..].iter().any(|pause| pause > &(LOCK_RETRY_MAX / 2)), "{pauses:?}");
        let long = 6 * LOCK_WAIT_LONG;
        wait.next_pause(long);
        let pauses: Vec<Duration> = (0..64).map(|n| wait.next_pause(long + Duration::from_nanos(n))).collect();
        assert!(pauses.iter().all(|pause| *pause <= LOCK_RETRY_MAX / 2), "{pauses:?}");
    }

    #[test]
    fn pauses_become_longer_and_after_a_long_wait_shorter() {
        let mut wait = LockWait::new(Duration::from_secs(1));
        assert_eq!(wait.pause, LOCK_RETRY_MIN);
        wait.next_pause(Duration::ZERO);
        assert_eq!(wait.pause, 2 * LOCK_RETRY_MIN);
        wait.next_pause(LOCK_WAIT_LONG);
        assert_eq!(wait.pause, 4 * LOCK_RETRY_MIN, "the wait is not long yet");
        for (waited, share) in
            [(5 * LOCK_WAIT_LONG / 4, 0.8), (8 * LOCK_WAIT_LONG / 5, 0.625), (9 * LOCK_WAIT_LONG, 0.5)]
        {
            wait.next_pause(waited);
            let (pause, expected) = (wait.pause.as_secs_f64(), LOCK_RETRY_MAX.as_secs_f64() * share);
            assert!((pause / expected - 1.0).abs() < 0.001, "{pause} after {waited:?}");
        }
    }

    #[test]
    fn a_pause_takes_a_third_of_the_longest_to_the_whole() {
        let mut wait = LockWait::new(Duration::from_secs(1));
        (0..8).for_each(|_| _ = wait.next_pause(Duration::ZERO));
        let pauses: Vec<Duration> = (0..400).map(|n| wait.next_pause(Duration::from_nanos(n))).collect();
        assert!(pauses.iter().all(|pause| (LOCK_RETRY_MAX / 3..=LOCK_RETRY_MAX).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause > LOCK_RETRY_MAX.mul_f64(0.8)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause < LOCK_RETRY_MAX.mul_f64(0.5)), "{pauses:?}");
    }

    #[test]
    fn the_front_of_the_queue_pauses_briefly_however_long_it_waits() {
        let mut wait = LockWait::new(Duration::from_secs(1)).of_front();
        let first = wait.next_pause(Duration::ZERO);
        assert!((LOCK_FRONT_PAUSE / 3..=LOCK_FRONT_PAUSE).contains(&first), "{first:?}");
        for waited in [Duration::ZERO, 2 * LOCK_WAIT_LONG, 9 * LOCK_WAIT_LONG] {
            let pauses: Vec<Duration> = (0..64).map(|n| wait.next_pause(waited + Duration::from_nanos(n))).collect();
            assert!(pauses.iter().all(|pause| *pause <= LOCK_FRONT_PAUSE), "{pauses:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_place_has_both_parts_of_the_numbers_of_its_device() {
        assert_eq!(place_of(0xfe01, 7), "fe:01:7");
        // The upper bits of a device are the rest of the major number, and the middle ones that of the minor number.
        assert_eq!(place_of(0x0001_2000_6783_459a, 7), "12345:6789a:7");
    }

    #[test]
    fn a_lock_covers_the_byte_of_writers_if_it_reaches_it() {
        let holder = |place: &str| holder_in(&format!("1: POSIX  ADVISORY  WRITE 7 fe:00:81 {place}"), "fe:00:81");
        for covering in ["0 EOF", "120 EOF", "120 120", "0 120", "119 121", "120 127"] {
            assert_eq!(holder(covering), Some(7), "{covering}");
        }
        for other in ["121 EOF", "0 119", "119 119", "121 127", "123 123"] {
            assert_eq!(holder(other), None, "{other}");
        }
    }

    #[test]
    fn a_wait_ends_at_its_limit_and_with_the_first_success() {
        let start = Stopwatch::start();
        assert!(found_busy(&wait_for(30, busy)));
        assert!(start.elapsed() >= Duration::from_millis(30));
        let mut attempts = 0;
        let result = wait_for(60_000, || {
            attempts += 1;
            if attempts < 5 { busy() } else { Ok(()) }
        });
        assert!(result.is_ok());
        attempts = 0;
        let busy_once = wait_for(0, || {
            attempts += 1;
            busy()
        });
        assert!(found_busy(&busy_once) && attempts == 1, "a limit of 0 does not wait");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_holder_is_found_among_other_locks() {
        let folder = tempfile::tempdir().expect("a folder");
        let locked = |name: String| {
            let path = folder.path().join(name);
            let conn = rusqlite::Connection::open(&path).expect("a file");
            conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (a); BEGIN IMMEDIATE").expect("a lock");
            (path, conn)
        };
        let _others: Vec<_> = (0..60).map(|n| locked(format!("other-{n}.db"))).collect();
        let (path, _conn) = locked("held.db".into());
        // Locks of other programs of the machine may hide it in some listings.
        assert!((0..500).any(|_| holder(&path) == Some(std::process::id())));
    }

    #[test]
    fn a_holder_that_a_listing_hides_is_found_in_the_next_one() {
        let place = "fe:00:81";
        let shows = |listings: usize| {
            let mut read = 0;
            let found = holder_of(place, || {
                read += 1;
                let holder = if read == listings { 96 } else { 0 };
                Some(format!("1: POSIX  ADVISORY  WRITE {holder} {place} 120 120\n"))
            });
            (found, read)
        };
        assert_eq!(shows(1), (Some(96), 1));
        assert_eq!(shows(LOCK_LISTINGS_MAX), (Some(96), LOCK_LISTINGS_MAX));
        assert_eq!(shows(LOCK_LISTINGS_MAX + 1), (None, LOCK_LISTINGS_MAX));
        assert_eq!(holder_of(place, || None), None);
    }

    #[test]
    fn the_holder_is_found_in_the_list_of_locks() {
        let locks = "1: FLOCK  ADVISORY  WRITE 91 fe:00:81 0 EOF\n2: POSIX  ADVISORY  READ 92 fe:00:81 123 123\n\
                     3: -> POSIX  ADVISORY  WRITE 93 fe:00:81 120 120\n4: POSIX  ADVISORY  WRITE 94 fe:00:82 120 120\n\
                     5: POSIX  ADVISORY  WRITE 95 fe:00:81 121 121\n6: POSIX  ADVISORY  WRITE 96 fe:00:81 120 120\n";
        assert_eq!(holder_in(locks, "fe:00:81"), Some(96));
        assert_eq!(holder_in(locks, "fe:00:83"), None);
        assert_eq!(holder_in("1: POSIX  ADVISORY  WRITE 0 fe:00:81 0 EOF", "fe:00:81"), None);
    }
}
