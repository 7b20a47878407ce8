//! What is known of a program: where its histories lie, which versions were seen, and what an import loses.
//!
//! *Absent:* reading the environment and the home folder, which is the caller's.

use super::SourceKind;

/// The facts of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceFacts {
    /// The names of the programs.
    pub programs: &'static str,
    /// The places of the histories on a machine; none if the user chooses them.
    pub places: &'static [SourcePlace],
    /// True if each entry of a place is read by itself: its sessions name no session of another entry.
    pub has_own_folders: bool,
    /// The versions whose files the reader knows, and from what.
    pub versions: &'static str,
    /// The month in which the reader was last compared with files or descriptions of the program, such as `2026-11`.
    pub checked: &'static str,
    /// What an import leaves out.
    pub lost: &'static str,
}

/// A place of histories: a path below a folder of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourcePlace {
    /// The folder.
    pub base: PlaceBase,
    /// The path below it, with `/` between its parts. A part `*` stands for each folder.
    pub path: &'static str,
}

/// A folder of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaceBase {
    /// The home folder of the user.
    Home,
    /// The folder of settings: `~/.config`, `~/Library/Application Support` or `%APPDATA%`.
    Config,
    /// The folder of data: `~/.local/share`, `~/Library/Application Support` or `%LOCALAPPDATA%`.
    Data,
    /// The working folder.
    Working,
    /// The folders that a variable of the environment names, separated by commas.
    Variable(&'static str),
}

pub(super) const fn home(path: &'static str) -> SourcePlace {
    SourcePlace { base: PlaceBase::Home, path }
}

pub(super) const fn config(path: &'static str) -> SourcePlace {
    SourcePlace { base: PlaceBase::Config, path }
}

pub(super) const fn data(path: &'static str) -> SourcePlace {
    SourcePlace { base: PlaceBase::Data, path }
}

pub(super) const fn working(path: &'static str) -> SourcePlace {
    SourcePlace { base: PlaceBase::Working, path }
}

pub(super) const fn variable(name: &'static str, path: &'static str) -> SourcePlace {
    SourcePlace { base: PlaceBase::Variable(name), path }
}

/// Shows the place as it is written on Linux, such as `~/.codex/sessions` or `$CODEX_HOME/sessions`.
impl std::fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.base, self.path) {
            (PlaceBase::Home, path) => write!(f, "~/{path}"),
            (PlaceBase::Config, path) => write!(f, "~/.config/{path}"),
            (PlaceBase::Data, path) => write!(f, "~/.local/share/{path}"),
            (PlaceBase::Working, path) => f.write_str(path),
            (PlaceBase::Variable(name), "") => write!(f, "${name}"),
            (PlaceBase::Variable(name), path) => write!(f, "${name}/{path}"),
        }
    }
}

/// Returns the table of all programs in Markdown: names, places, versions, and what is lost.
///
/// # Example
/// ```
/// let table = annals_import::sources_table();
/// assert!(table.contains("| codex | Codex | `~/.codex/sessions`"));
/// ```
pub fn sources_table() -> String {
    let mut table = "| `--from` | programs | where | versions | checked | lost |\n".to_owned();
    table.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for kind in SourceKind::ALL {
        let SourceFacts { programs, places, versions, checked, lost, .. } = kind.facts();
        let mut places: Vec<String> = places.iter().map(|place| format!("`{place}`")).collect();
        // A place of other systems is one that Linux has under another base.
        let mut shown = std::collections::HashSet::new();
        places.retain(|place| shown.insert(place.clone()));
        let places = if places.is_empty() { "anywhere".to_owned() } else { places.join(", ") };
        table.push_str(&format!("| {kind} | {programs} | {places} | {versions} | {checked} | {lost} |\n"));
    }
    table
}
