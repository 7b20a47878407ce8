//! Texts for the facts of a history: ages, sizes, numbers, statuses, nodes, values on one line.

use annals::base::{Timestamp, Value};
use annals::history::{PartialInfo, Snapshot, ThreadInfo};
use annals::store::{Source, StoreError};
use annals_runs::ThreadStatus;
use serde_json::{Value as Json, json};

use crate::limits::BRIEF_CHARS_MAX;

/// The node that stands for the start of a graph.
pub const START: &str = "__start__";

/// Returns the parent of a checkpoint; `None` also for one that was pruned.
///
/// # Errors
/// [`StoreError::Read`], [`StoreError::Corrupt`].
pub fn stored_parent(at: &Snapshot) -> Result<Option<Snapshot>, StoreError> {
    match at.parent() {
        Err(StoreError::CheckpointPruned { .. }) => Ok(None),
        parent => parent,
    }
}

/// Returns the age of a timestamp: `2 min ago`; older than 60 days the date.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_micros().saturating_sub(then.as_micros()) / 1_000_000;
    match seconds {
        ..-60 => then.to_string().chars().take(10).collect(),
        -60..5 => "now".into(),
        5..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..5_184_000 => format!("{} d ago", seconds / 86_400),
        _ => then.to_string().chars().take(10).collect(),
    }
}

/// Returns the age of a timestamp for a column: older than a day the weekday and the hour, older than a week the date,
/// of another year the month.
pub fn age(now: Timestamp, then: Timestamp) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let year = |of: Timestamp| of.to_string().chars().take(4).collect::<String>();
    let date = || match date(then) {
        day if year(then) == year(now) => day,
        day => format!("{} {}", day.split_whitespace().next_back().unwrap_or_default(), year(then)),
    };
    let seconds = now.as_micros().saturating_sub(then.as_micros()) / 1_000_000;
    match seconds {
        ..-60 => date(),
        -60..5 => "now".into(),
        5..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        86_400..604_800 => {
            // The epoch was a Thursday.
            let weekday = day(then).rem_euclid(7) as usize;
            format!("{} {}", WEEKDAYS[weekday], then.to_string().chars().skip(11).take(5).collect::<String>())
        }
        _ => date(),
    }
}

/// Returns the date of a timestamp without the year: `28 Nov`.
pub fn date(at: Timestamp) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let whole = at.to_string();
    let mut parts = whole.get(..10).unwrap_or_default().rsplitn(3, '-').map(str::parse::<usize>);
    match (parts.next(), parts.next()) {
        (Some(Ok(day)), Some(Ok(month @ 1..=12))) => format!("{day} {}", MONTHS[month - 1]),
        _ => whole,
    }
}

/// Returns the number of the day of a timestamp since the epoch, in UTC.
pub fn day(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(86_400_000_000)
}

/// Returns the time that is left to a timestamp.
pub fn until(now: Timestamp, then: Timestamp) -> String {
    let micros = then.as_micros().saturating_sub(now.as_micros());
    if micros <= 0 { "now".into() } else { format!("in {}", span(micros)) }
}

/// Returns a duration with its unit.
pub fn span(micros: i64) -> String {
    match micros {
        ..0 => "0 ms".into(),
        0..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{} min", micros / 60_000_000),
        3_600_000_000..172_800_000_000 => format!("{} h", micros / 3_600_000_000),
        _ => format!("{} d", micros / 86_400_000_000),
    }
}

/// Returns a size with its unit.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Returns a number with its thousands set apart.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a large number in thousands, with three digits.
pub fn rounded(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..100_000 => format!("{:.1}k", n as f64 / 1e3),
        100_000..1_000_000 => format!("{}k", n / 1_000),
        1_000_000..10_000_000 => format!("{:.2}M", n as f64 / 1e6),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

/// Returns a cost in US dollars.
pub fn cost(usd: f64) -> String {
    if usd > 0.0 && usd < 0.1 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// Returns a number with its noun.
pub fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Shortens a text to a number of characters.
pub fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a value on one line, shortened. A text is shown without quotes.
pub fn brief(value: &Value) -> String {
    match value {
        Value::Str(text) => shortened(&text.chars().take(BRIEF_CHARS_MAX + 1).collect::<String>(), BRIEF_CHARS_MAX),
        Value::Bytes(bytes) => format!("{} of bytes", size(bytes.len() as u64)),
        value => shortened(&value.to_json().to_string(), BRIEF_CHARS_MAX),
    }
}

/// Returns the text of an interrupt: its value if that is a text, the member `question` of an object, or the tools for
/// which an agent asks leave; of another value its JSON.
pub fn interrupt(value: &Value) -> String {
    let actions = value.get("action_requests").and_then(Value::as_list).unwrap_or_default();
    let tools = tally(actions.iter().filter_map(|action| action.get("name")?.as_str()));
    if !tools.is_empty() {
        return format!("leave for {tools}?");
    }
    match value.as_str().or_else(|| value.get("question").and_then(Value::as_str)) {
        Some(text) => text.to_owned(),
        None => value.to_json().to_string(),
    }
}

/// Returns node names with their number of occurrences: `list, read ×12`.
pub fn tally<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(seen, _)| *seen == name) {
            Some((_, n)) => *n += 1,
            None => counts.push((name, 1)),
        }
    }
    let shown = |name: &str| if name == START { "(start)".to_owned() } else { name.to_owned() };
    let word = |(name, n): (&str, usize)| if n == 1 { shown(name) } else { format!("{} ×{n}", shown(name)) };
    counts.into_iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Returns the nodes that ran to make a checkpoint out of its parent, one name for each task.
pub fn ran<'a>(at: &Snapshot, parent: Option<&'a Snapshot>) -> Vec<&'a str> {
    let parent = parent.filter(|_| at.source() == Source::Loop);
    parent.map(|parent| parent.next().collect()).unwrap_or_default()
}

/// Returns the cause of a checkpoint: its nodes, or its source.
pub fn made(at: &Snapshot, parent: Option<&Snapshot>) -> String {
    match at.source() {
        Source::Loop => tally(ran(at, parent)),
        Source::Input => "(input)".into(),
        Source::Update => "(edited)".into(),
        Source::Fork => "(fork)".into(),
    }
}

/// Derives the status from a checkpoint, as a listing of threads does from the head, and the mark of half an answer.
///
/// # Errors
/// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
pub fn status(at: &Snapshot) -> Result<(ThreadStatus, Option<PartialInfo>), StoreError> {
    let head = at.record().clone();
    let writes = at.writes()?;
    let (seq, created_at) = (head.seq, head.created_at);
    let info = ThreadInfo::new(head, seq, created_at, Vec::new(), &writes)?;
    Ok((ThreadStatus::of(&info), info.partial.clone()))
}

/// Returns the mark of half an answer as JSON.
pub fn partial_json(partial: Option<&PartialInfo>) -> Json {
    partial.map_or(
        Json::Null,
        |partial| json!({ "channel": partial.channel, "words": partial.words, "updated": partial.updated.to_string() }),
    )
}

/// Returns a status with its cause: the open interrupts, the error, the time of waking. `next` names the nodes that are
/// due.
pub fn status_text(status: &ThreadStatus, next: &str) -> String {
    match status {
        ThreadStatus::Running => format!("due: {next}"),
        ThreadStatus::Interrupted(values) => {
            format!("interrupted: {}", values.iter().map(interrupt).collect::<Vec<_>>().join(" / "))
        }
        ThreadStatus::Failed(error) => format!("failed: {error}"),
        ThreadStatus::Stuck(error) => format!("stuck: {error}"),
        ThreadStatus::Sleeping(until) => format!("sleeping until {until}"),
        ThreadStatus::Cancelled(Some(reason)) => format!("cancelled: {reason}"),
        status => status.to_string(),
    }
}

/// Returns the metadata of a checkpoint.
pub fn metadata(at: &Snapshot) -> Json {
    let text = at.record().metadata.as_deref();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| json!({}))
}

/// Returns the thread and the id of a checkpoint as JSON.
pub fn place(at: &Snapshot) -> Json {
    json!({ "thread": at.point().thread.as_str(), "checkpoint": at.id().to_string() })
}

/// Quotes an argument of a command for a shell.
pub fn shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@~=,%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('~') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Writes a name as a step of a JSON Pointer (RFC 6901).
pub fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_for_people() {
        assert_eq!(
            (grouped(1_234_567), rounded(31_240), count(1, "step")),
            ("1,234,567".into(), "31.2k".into(), "1 step".into())
        );
        assert_eq!((size(1_536), cost(0.41), cost(0.012)), ("1.5 KiB".into(), "$0.41".into(), "$0.0120".into()));
        assert_eq!((span(120_000), span(2_100_000), span(-1)), ("120 ms".into(), "2.1 s".into(), "0 ms".into()));
        assert_eq!(ago(Timestamp::from_micros(120_000_000), Timestamp::from_micros(0)), "2 min ago");
        assert_eq!(ago(Timestamp::from_micros(0), Timestamp::from_micros(1)), "now");
        assert_eq!((size(1_000), size(3 << 20)), ("1000 B".into(), "3.0 MiB".into()));
        let (hour, week) = (3_600_000_000, 604_800_000_000);
        let aged = |micros| age(Timestamp::from_micros(week), Timestamp::from_micros(micros));
        assert_eq!((aged(week - 2 * hour), aged(hour)), ("2 h".into(), "Thu 01:00".into()));
        assert_eq!(age(Timestamp::from_micros(2 * week), Timestamp::from_micros(hour)), "1 Jan");
        assert_eq!(
            (aged(-hour), rounded(412_345), rounded(1_062_000)),
            ("Dec 1969".into(), "412k".into(), "1.06M".into())
        );
        let (now, then) = (Timestamp::from_micros(5_000_000), Timestamp::from_micros(45_000_000));
        assert_eq!((until(now, then), until(then, now)), ("in 40.0 s".into(), "now".into()));
        assert_eq!(shortened("äbc", 2), "äb…");
        assert_eq!(date(Timestamp::from_micros(86_400_000_000 * 31)), "1 Feb");
    }

    #[test]
    fn an_argument_is_one_word_of_a_shell() {
        assert_eq!(shell("trip@1f0c"), "trip@1f0c");
        assert_eq!(shell("it's; rm -rf $HOME"), "'it'\\''s; rm -rf $HOME'");
        assert_eq!(shell(""), "''");
        assert_eq!(shell("~x"), "'~x'");
    }
}
