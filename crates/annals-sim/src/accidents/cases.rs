//! The accidents: what befalls which file at which moment, and what may be lost without a word.

use std::ops::RangeInclusive;

use super::files::{AccidentTarget, FileBytes, FileHistory, StoreFiles, items};

/// The moment of an accident in the life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Closed,
    /// A process has it open and has committed nothing yet.
    Idle,
    /// A process has committed, and the commits are in the log.
    Between,
    /// A process stands within a commit, before its first frame is written.
    BeforeWrite,
    /// A process stands within a commit whose frames are written and not synced.
    BeforeSync,
    /// The process was killed.
    Killed,
}

impl Moment {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Closed, "closed"),
        (Self::Idle, "idle"),
        (Self::Between, "between-commits"),
        (Self::BeforeWrite, "before-write"),
        (Self::BeforeSync, "before-sync"),
        (Self::Killed, "killed"),
    ];

    /// Returns whether a process lives through the accident.
    pub(super) fn is_live(self) -> bool {
        !matches!(self, Self::Closed | Self::Killed)
    }

    /// Returns the items that are acknowledged before the accident.
    pub(super) fn acknowledged(self) -> RangeInclusive<u64> {
        if self == Self::Idle { 1..=20 } else { 1..=30 }
    }
}

/// An accident of a file.
#[derive(Clone, Debug)]
pub(super) enum AccidentAct {
    Remove,
    /// Another file is renamed to its name.
    Rename(FileBytes),
    /// Its content is overwritten by that of another file.
    Overwrite(FileBytes),
    /// It is overwritten by its own content at 25 items, in the session of the process.
    OverwriteByEarlier,
    Empty,
    Halve,
    /// It is moved to another name, and back.
    MoveAway,
    MoveBack,
}

/// A step of an accident.
#[derive(Clone, Debug)]
pub(super) struct AccidentStep {
    pub(super) target: AccidentTarget,
    pub(super) act: AccidentAct,
}

/// A state that the files have after some accidents: it existed before, so no program can tell that it is not the
/// newest.
#[derive(Clone, Debug)]
pub(super) struct Excuse {
    pub(super) reason: &'static str,
    pub(super) shows: ExcusedState,
}

/// The items that a store may show with an excuse.
#[derive(Clone, Debug)]
pub(super) enum ExcusedState {
    Exactly(Vec<String>),
    /// Those of the last closing, and any number of those after it.
    Earlier,
}

/// A fault that the judge must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedAccident {
    /// The judge is told of an acknowledgement that was never given.
    ForgedAck,
    /// SQLite itself brings a closed store to an earlier state by a log that is not its own.
    RawReplay,
    /// An older copy takes the place of a closed store, and the judge has no excuse for it.
    WithoutExcuse,
    /// A file that was refused is changed before the judge compares it.
    ChangedFile,
    /// A stored commit is reported as one that was not written.
    FalseRefusal,
    /// The process that opens the store panics.
    Panic,
    /// The process that opens the store does not answer.
    Hang,
}

impl PlantedAccident {
    /// All of them, with their names.
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::ForgedAck, "forged-ack"),
        (Self::RawReplay, "raw-replay"),
        (Self::WithoutExcuse, "without-excuse"),
        (Self::ChangedFile, "changed-file"),
        (Self::FalseRefusal, "false-refusal"),
        (Self::Panic, "panic"),
        (Self::Hang, "hang"),
    ];
}

/// An accident and the store that it befalls.
#[derive(Clone, Debug)]
pub(super) struct AccidentCase {
    pub(super) name: String,
    pub(super) encrypted: bool,
    pub(super) moment: Moment,
    /// The files at the beginning.
    pub(super) start: StoreFiles,
    pub(super) steps: Vec<AccidentStep>,
    /// Steps after the commits of a process that lives through the accident, before it closes.
    pub(super) later: Vec<AccidentStep>,
    /// True if a second process opens the store after the accident, and both commit in turn.
    pub(super) second: bool,
    pub(super) excuse: Option<Excuse>,
    pub(super) planted: Option<PlantedAccident>,
}

const OLDER_COPY: &str = "an older copy of the closed file is a whole store";
const OTHER_STORE: &str = "the closed file of another store is a whole store";
const NEW_STORE: &str = "a path without a file, or with an empty one and no log, is a new store";
const SHORTER_LOG: &str = "a log that ends earlier is the log of an earlier moment";
const OLDER_PAIR: &str = "file and log of an earlier moment are a whole store";

fn exactly(reason: &'static str, items: Vec<String>) -> Option<Excuse> {
    Some(Excuse { reason, shows: ExcusedState::Exactly(items) })
}

fn earlier() -> Option<Excuse> {
    Some(Excuse { reason: SHORTER_LOG, shows: ExcusedState::Earlier })
}

/// Collects the cases of a history.
struct Catalog<'a> {
    history: &'a FileHistory,
    /// The history with keys, for one without, and the other way round.
    counterpart: &'a FileHistory,
    cases: Vec<AccidentCase>,
}

/// Returns the cases of a history, and those of `counterpart` that meet it.
pub(super) fn cases(history: &FileHistory, counterpart: &FileHistory) -> Vec<AccidentCase> {
    let mut catalog = Catalog { history, counterpart, cases: Vec::new() };
    for moment in Moment::ALL {
        catalog.matrix(moment);
    }
    catalog.foreign_logs();
    catalog.backups();
    catalog.two_machines();
    catalog.live_files();
    catalog.earlier_moments();
    catalog.cases
}

/// Returns the controls.
pub(super) fn controls(history: &FileHistory, counterpart: &FileHistory) -> Vec<AccidentCase> {
    let mut catalog = Catalog { history, counterpart, cases: Vec::new() };
    for (planted, name) in PlantedAccident::ALL {
        let steps = match planted {
            PlantedAccident::WithoutExcuse => {
                rename(AccidentTarget::Main, &history.ten, AccidentTarget::Main).into_iter().collect::<Vec<_>>()
            }
            PlantedAccident::ChangedFile => {
                vec![AccidentStep { target: AccidentTarget::Main, act: AccidentAct::Halve }]
            }
            _ => Vec::new(),
        };
        let case = catalog.add(Moment::Closed, name, steps, None);
        case.planted = Some(planted);
    }
    catalog.cases
}

/// Returns the step that renames one of some files to a name.
fn rename(target: AccidentTarget, files: &StoreFiles, source: AccidentTarget) -> Option<AccidentStep> {
    Some(AccidentStep { target, act: AccidentAct::Rename(files.get(source)?.clone()) })
}

/// Returns the steps that rename the main file and the log of another moment to their names. The shared memory goes.
fn rename_pair(files: &StoreFiles) -> Vec<AccidentStep> {
    let log = rename(AccidentTarget::Log, files, AccidentTarget::Log)
        .unwrap_or(AccidentStep { target: AccidentTarget::Log, act: AccidentAct::Remove });
    let memory = AccidentStep { target: AccidentTarget::Memory, act: AccidentAct::Remove };
    rename(AccidentTarget::Main, files, AccidentTarget::Main).into_iter().chain([log, memory]).collect()
}

fn remove(targets: &[AccidentTarget]) -> Vec<AccidentStep> {
    targets.iter().map(|target| AccidentStep { target: *target, act: AccidentAct::Remove }).collect()
}

impl Catalog<'_> {
    /// Adds a case with the usual files of its moment.
    fn add(
        &mut self,
        moment: Moment,
        name: &str,
        steps: Vec<AccidentStep>,
        excuse: Option<Excuse>,
    ) -> &mut AccidentCase {
        let history = self.history;
        let keys = if history.encrypted { "encrypted" } else { "plain" };
        let start = match moment {
            Moment::Closed => history.thirty.clone(),
            Moment::Killed => history.killed.clone(),
            _ => history.twenty.clone(),
        };
        let at = self.cases.len();
        self.cases.push(AccidentCase {
            name: format!("{keys}/{name}"),
            encrypted: history.encrypted,
            moment,
            start,
            steps,
            later: Vec::new(),
            second: false,
            excuse,
            planted: None,
        });
        &mut self.cases[at]
    }

    /// Every file, and everything that can befall it, at one moment.
    fn matrix(&mut self, (moment, moment_name): (Moment, &str)) {
        let history = self.history;
        for (target, target_name) in AccidentTarget::ALL {
            // The bytes copied over a file are those of its own kind, of the moment of a session that has ended.
            let older = if target == AccidentTarget::Main { &history.ten } else { &history.fifteen };
            let other = if target == AccidentTarget::Main { &history.other } else { &history.other_open };
            let bytes = |files: &StoreFiles| files.get(target).cloned().unwrap_or_default();
            let acts = [
                ("removed", AccidentAct::Remove),
                ("older-by-rename", AccidentAct::Rename(bytes(older))),
                ("older-by-copy", AccidentAct::Overwrite(bytes(older))),
                ("of-another-store", AccidentAct::Rename(bytes(other))),
                ("of-another-store-by-copy", AccidentAct::Overwrite(bytes(other))),
                ("emptied", AccidentAct::Empty),
                ("halved", AccidentAct::Halve),
            ];
            for (act_name, act) in acts {
                let has_log = !matches!(moment, Moment::Closed | Moment::Idle);
                let excuse = match (target, act_name) {
                    (AccidentTarget::Main, "removed") if moment != Moment::Killed => exactly(NEW_STORE, Vec::new()),
                    (AccidentTarget::Main, "emptied") if !has_log => exactly(NEW_STORE, Vec::new()),
                    (AccidentTarget::Main, "older-by-rename" | "older-by-copy") if !has_log => {
                        exactly(OLDER_COPY, items("mine", 1..=10))
                    }
                    (AccidentTarget::Main, "of-another-store" | "of-another-store-by-copy") if !has_log => {
                        exactly(OTHER_STORE, items("other", 1..=25))
                    }
                    (AccidentTarget::Log, "halved") => earlier(),
                    _ => None,
                };
                let name = format!("{moment_name}/{target_name}/{act_name}");
                self.add(moment, &name, vec![AccidentStep { target, act }], excuse);
            }
        }
    }

    /// The log of something else beside a closed and beside a killed store.
    fn foreign_logs(&mut self) {
        let logs = [
            ("of-another-program", &self.history.stranger),
            ("of-a-store-with-other-keys", &self.counterpart.other_open),
            ("of-a-copy-with-other-keys", &self.counterpart.twenty_five),
        ];
        for (log, files) in logs {
            for (moment, moment_name) in
                [(Moment::Closed, "closed"), (Moment::Killed, "killed"), (Moment::Between, "between-commits")]
            {
                let name = format!("{moment_name}/log/{log}");
                self.add(
                    moment,
                    &name,
                    rename(AccidentTarget::Log, files, AccidentTarget::Log).into_iter().collect(),
                    None,
                );
            }
        }
    }

    /// A backup that is copied back over the file alone, and as it should be.
    fn backups(&mut self) {
        let history = self.history;
        let backups = [
            ("of-the-session", &history.backup, 25),
            ("of-the-last-closing", &history.twenty, 20),
            ("older", &history.ten, 10),
        ];
        for (name, files, last) in backups {
            let bytes = files.get(AccidentTarget::Main).cloned().unwrap_or_default();
            for (way, act) in
                [("rename", AccidentAct::Rename(bytes.clone())), ("copy", AccidentAct::Overwrite(bytes.clone()))]
            {
                let case = format!("killed/backup-{name}-by-{way}");
                self.add(Moment::Killed, &case, vec![AccidentStep { target: AccidentTarget::Main, act }], None);
            }
            let step = AccidentStep { target: AccidentTarget::Main, act: AccidentAct::Overwrite(bytes) };
            let steps = [step].into_iter().chain(remove(&[AccidentTarget::Log, AccidentTarget::Memory])).collect();
            let excuse = exactly(OLDER_COPY, items("mine", 1..=last));
            self.add(Moment::Killed, &format!("killed/backup-{name}-and-no-log"), steps, excuse);
        }
    }

    /// File and log of two machines, or of two moments.
    fn two_machines(&mut self) {
        let history = self.history;
        let twin_log =
            || rename(AccidentTarget::Log, &history.twin_open, AccidentTarget::Log).into_iter().collect::<Vec<_>>();
        let twin_file =
            || rename(AccidentTarget::Main, &history.twin, AccidentTarget::Main).into_iter().collect::<Vec<_>>();
        self.add(Moment::Closed, "closed/log-of-another-machine", twin_log(), None);
        self.add(Moment::Killed, "killed/log-of-another-machine", twin_log(), None);
        self.add(Moment::Killed, "killed/file-of-another-machine", twin_file(), None);
        let session_log = rename(AccidentTarget::Log, &history.twenty_five, AccidentTarget::Log).into_iter().collect();
        self.add(Moment::Closed, "closed/log-of-the-last-session", session_log, None);
        for (moment, name) in [(Moment::Idle, "idle"), (Moment::Between, "between-commits")] {
            let mut shown = items("mine", 1..=20);
            shown.extend(items("twin", 21..=30));
            // A service that synchronises the file of a process that has it open.
            let excuse = (moment == Moment::Idle).then(|| exactly(OTHER_STORE, shown.clone())).flatten();
            self.add(moment, &format!("{name}/file-of-another-machine"), twin_file(), excuse);
            self.add(moment, &format!("{name}/log-of-another-machine"), twin_log(), None);
            let pair = rename_pair(&history.twin_open);
            self.add(moment, &format!("{name}/file-and-log-of-another-machine"), pair, exactly(OLDER_PAIR, shown));
        }
    }

    /// Files that go, come back, or are written by two processes that do not share them any more.
    fn live_files(&mut self) {
        let both = [AccidentTarget::Log, AccidentTarget::Memory];
        for (moment, name) in
            [(Moment::Idle, "idle"), (Moment::Between, "between-commits"), (Moment::BeforeSync, "before-sync")]
        {
            self.add(moment, &format!("{name}/log-and-memory-removed"), remove(&both), None);
            self.add(moment, &format!("{name}/log-and-memory-removed-second-process"), remove(&both), None).second =
                true;
            self.add(moment, &format!("{name}/log-removed-second-process"), remove(&[AccidentTarget::Log]), None)
                .second = true;
            self.add(
                moment,
                &format!("{name}/memory-removed-second-process"),
                remove(&[AccidentTarget::Memory]),
                None,
            )
            .second = true;
            let everything = remove(&[AccidentTarget::Main, AccidentTarget::Log, AccidentTarget::Memory]);
            self.add(moment, &format!("{name}/everything-removed"), everything, exactly(NEW_STORE, Vec::new()));
            for (target, target_name) in AccidentTarget::ALL {
                let away = vec![AccidentStep { target, act: AccidentAct::MoveAway }];
                let case = self.add(moment, &format!("{name}/{target_name}/moved-away-and-back"), away, None);
                case.later = vec![AccidentStep { target, act: AccidentAct::MoveBack }];
            }
        }
        self.add(Moment::Killed, "killed/log-and-memory-removed", remove(&both), None);
    }

    /// Earlier moments of the same session.
    fn earlier_moments(&mut self) {
        let session = |target| rename(target, &self.history.twenty_five, target).into_iter().collect::<Vec<_>>();
        let (log, memory) = (session(AccidentTarget::Log), session(AccidentTarget::Memory));
        // This log is that of another session on the same file.
        self.add(Moment::Killed, "killed/log-of-another-session", log, None);
        self.add(Moment::Killed, "killed/memory-of-another-session", memory, None);
        for (moment, name) in [
            (Moment::Between, "between-commits"),
            (Moment::BeforeWrite, "before-write"),
            (Moment::BeforeSync, "before-sync"),
        ] {
            // SQLite believes a shared memory that is overwritten in place while it is used: that is not told.
            for (target, target_name) in AccidentTarget::ALL.into_iter().filter(|(it, _)| *it != AccidentTarget::Memory)
            {
                let excuse = (target == AccidentTarget::Log).then(earlier).flatten();
                let steps = vec![AccidentStep { target, act: AccidentAct::OverwriteByEarlier }];
                self.add(moment, &format!("{name}/{target_name}/of-25-items-by-copy"), steps, excuse);
            }
        }
        let own_log = rename(AccidentTarget::Log, &self.history.before_kill, AccidentTarget::Log).into_iter().collect();
        self.add(Moment::Killed, "killed/log-of-25-items", own_log, earlier());
        let pair = rename_pair(&self.history.fifteen);
        let excuse = exactly(OLDER_PAIR, items("mine", 1..=15));
        self.add(Moment::Killed, "killed/file-and-log-of-an-earlier-moment", pair.clone(), excuse.clone());
        self.add(Moment::Closed, "closed/file-and-log-of-an-earlier-moment", pair.clone(), excuse.clone());
        self.add(Moment::Between, "between-commits/file-and-log-of-an-earlier-moment", pair, excuse);
    }
}
