//! The identity of a process, by which another process on the same machine finds out that it has ended.
//!
//! The number of a process is used again after its end, so its start is noted too, and the machine: the boot and the
//! namespace of processes in which the number counts. Only Linux tells these; elsewhere no process is known to have
//! ended.

use crate::base::internal::hash::check64;

/// A process: its number, its start, and the machine on which both count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessMark {
    id: u32,
    /// The start in clock ticks since the boot; 0 if it is not known.
    start: u64,
    /// The hash of the boot and of the namespace of processes; 0 if it is not known.
    machine: u64,
}

impl ProcessMark {
    /// Returns the mark of this process.
    pub(super) fn of_this() -> Self {
        let id = std::process::id();
        // A fork of the process has another number.
        static THIS: parking_lot::Mutex<Option<ProcessMark>> = parking_lot::Mutex::new(None);
        let mut this = THIS.lock();
        match *this {
            Some(mark) if mark.id == id => mark,
            _ => {
                let start = start_of(id).flatten().unwrap_or(0);
                let machine = if start == 0 { 0 } else { machine().unwrap_or(0) };
                *this.insert(Self { id, start, machine })
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Writes the mark as `4711 83746 1f0c2a9b8d7e6f50`.
    pub(super) fn to_text(self) -> String {
        format!("{} {} {:016x}", self.id, self.start, self.machine)
    }

    /// Reads a mark; parts that are missing count as unknown.
    pub(super) fn read(text: &str) -> Self {
        let mut parts = text.split(' ');
        let id = parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let start = parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let machine = parts.next().and_then(|part| u64::from_str_radix(part, 16).ok()).unwrap_or(0);
        Self { id, start, machine }
    }

    /// Returns whether the process is known to have ended.
    pub(super) fn has_died(&self) -> bool {
        let this = Self::of_this();
        if self.machine == 0 || self.machine != this.machine || *self == this {
            return false;
        }
        // A process of another user may be hidden: it is missing, and alive.
        if start_of(1).is_none() {
            return false;
        }
        match start_of(self.id) {
            None => true,
            Some(start) => start != Some(self.start),
        }
    }
}

/// Returns the start of a process; `Some(None)` of one that has ended and is not collected yet, `None` if there is
/// none.
fn start_of(id: u32) -> Option<Option<u64>> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program is in parentheses and may hold any character.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return Some(None);
    }
    // The start is the 22nd field, of which the state is the third.
    Some(Some(fields.nth(18)?.parse().ok()?))
}

fn machine() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(check64(format!("{} {}", boot.trim(), space.display()).as_bytes()).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let this = ProcessMark::of_this();
        assert_eq!(ProcessMark::read(&this.to_text()), this);
        assert_eq!(ProcessMark::read("not a mark"), ProcessMark { id: 0, start: 0, machine: 0 });
        assert!(!this.has_died());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_has_died_when_it_ended_or_when_its_number_has_another_start() {
        let this = ProcessMark::of_this();
        assert!(this.machine != 0 && this.start != 0, "{this:?}");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = start_of(child.id()).unwrap().unwrap();
        let mark = ProcessMark { id: child.id(), start, ..this };
        assert!(!mark.has_died());
        assert!(ProcessMark { start: start + 1, ..mark }.has_died());
        assert!(!ProcessMark { machine: 5, start: start + 1, ..mark }.has_died(), "another machine");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(mark.has_died());
    }
}
