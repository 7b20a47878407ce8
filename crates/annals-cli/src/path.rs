//! The grammar of a place within a state: `plan`, `plan.city`, `stops[2].name`, `messages#ID`, `messages#ID.content`.

use annals::base::Value;
use annals::history::Snapshot;
use annals::store::ItemRange;
use annals_runs::SnapshotRuns;
use annals_view::words;

use annals_graph::graph::END;

use crate::errors::CommandFailure;
use crate::point::nearest;

/// The name by which the result of a workflow is shown.
const RESULT: &str = "result";

/// A channel, an item of a list, or a part of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValuePath {
    pub(crate) channel: String,
    /// The id of an item of the channel.
    pub(crate) item: Option<String>,
    /// The members and indices below the channel or the item.
    pub(crate) members: Vec<String>,
}

impl ValuePath {
    /// Reads a path. The name of a channel may hold the marks of the grammar: the longest name that the text begins
    /// with counts. In the id of an item a dot ends the id, unless the id is in quotes.
    pub(crate) fn read(at: &Snapshot, text: &str) -> Result<Self, CommandFailure> {
        let mut channels = at.channels()?;
        // The result of a workflow is shown among the channels, and is named like one.
        if channels.iter().all(|name| &**name != RESULT) && at.result()?.is_some() {
            channels.push(RESULT.into());
        }
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[', '#', '/']);
        let begins = channels.iter().filter(|name| text.strip_prefix(&***name).is_some_and(ends));
        let Some(channel) = begins.max_by_key(|name| name.len()) else {
            let name = text.split(['.', '[', '#', '/']).next().unwrap_or_default();
            let message = format!("channel {name} is empty at this point");
            let known: Vec<&str> = channels.iter().map(|name| &**name).collect();
            let failure = CommandFailure::not_found("channel_not_found", message);
            return Err(failure.hint(match (nearest(name, known.iter().copied()), known.is_empty()) {
                (Some(near), _) => format!("did you mean {near}?"),
                (None, false) => format!("channels with a value: {}", known.join(", ")),
                (None, true) => "no channel has a value at this point".to_owned(),
            }));
        };
        let is_result = &**channel == RESULT && !at.channels()?.contains(channel);
        let stored = if is_result { END.to_owned() } else { channel.to_string() };
        let path = Self { channel: stored, item: None, members: Vec::new() };
        path.continued(text, &text[channel.len()..])
    }

    /// Reads a path below a channel with which the text begins.
    pub(crate) fn below(channel: &str, text: &str) -> Result<Self, CommandFailure> {
        let path = Self { channel: channel.to_owned(), item: None, members: Vec::new() };
        path.continued(text, text.strip_prefix(channel).unwrap_or_default())
    }

    /// Reads the rest of a path: the item, and the members.
    fn continued(mut self, text: &str, mut rest: &str) -> Result<Self, CommandFailure> {
        if let Some(id) = rest.strip_prefix('#') {
            let quoted = id.strip_prefix('"').and_then(|id| id.split_once('"'));
            let (id, after) = quoted.unwrap_or_else(|| id.split_at(id.find(['.', '[', '/']).unwrap_or(id.len())));
            if id.is_empty() {
                return Err(CommandFailure::usage(format!("{text}: the id of an item follows #")));
            }
            (self.item, rest) = (Some(id.to_owned()), after);
        }
        self.members = members(rest).ok_or_else(|| {
            CommandFailure::usage(format!("{text}: {rest} does not name a part of a value"))
                .hint("a part is .member, [index] or a JSON Pointer such as /stops/2/name")
        })?;
        Ok(self)
    }

    /// Returns the part below the channel or the item as a JSON Pointer (RFC 6901).
    pub(crate) fn pointer(&self) -> String {
        self.members.iter().map(|member| format!("/{}", words::pointer(member))).collect()
    }

    /// Returns the part of the value of the channel or the item.
    pub(crate) fn part(&self, value: &Value) -> Option<Value> {
        part(value.clone(), &self.members)
    }

    /// Returns the value at the path; `None` if there is none.
    pub(crate) fn value(&self, at: &Snapshot) -> Result<Option<Value>, CommandFailure> {
        let value = match &self.item {
            None => {
                if let Some((first, rest)) = self.members.split_first()
                    && let Some(found) = entry(at, &self.channel, first)?
                {
                    return Ok(part(found, rest));
                }
                at.get(&self.channel)?
            }
            Some(id) => at.item_evolution(&self.channel, id)?.next().transpose()?.and_then(|version| version.value),
        };
        Ok(value.and_then(|value| part(value, &self.members)))
    }

    /// Returns whether the path names a channel as a whole.
    pub(crate) fn is_channel(&self) -> bool {
        self.item.is_none() && self.members.is_empty()
    }
}

/// Returns the part of a value that members and indices lead to.
fn part(value: Value, members: &[String]) -> Option<Value> {
    let step = |value: Value, member: &String| match value {
        Value::List(_) => value.as_list()?.get(member.parse::<usize>().ok()?).cloned(),
        value => value.get(member).cloned(),
    };
    members.iter().try_fold(value, step)
}

/// Returns the entry of a map channel, or the item of a list channel without deletes, without reading the others;
/// `None` if the channel has to be read as a whole.
fn entry(at: &Snapshot, channel: &str, member: &str) -> Result<Option<Value>, CommandFailure> {
    let len = at.len(channel)?;
    if len == 0 {
        return Ok(None);
    }
    if let Some(value) = at.entry(channel, member)? {
        return Ok(Some(value));
    }
    let Some(index) = member.parse::<u64>().ok().filter(|index| *index < len) else { return Ok(None) };
    let mut last = None;
    at.visit_items(channel, ItemRange::Tail(1), |row| {
        last = Some(row.position);
        Ok(())
    })?;
    if last != Some(len - 1) {
        return Ok(None);
    }
    Ok(at.items(channel, ItemRange::Positions(index, index + 1))?.pop())
}

/// Reads `.member`, `[index]` and `/member` up to the end.
fn members(text: &str) -> Option<Vec<String>> {
    if let Some(pointer) = text.strip_prefix('/') {
        let unescaped = |part: &str| part.replace("~1", "/").replace("~0", "~");
        return Some(pointer.split('/').map(unescaped).collect());
    }
    let (mut members, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (member, after) = match rest.strip_prefix('[') {
            Some(inside) => {
                let (index, after) = inside.split_once(']')?;
                (index.parse::<usize>().ok()?.to_string(), after)
            }
            None => {
                let name = rest.strip_prefix('.')?;
                let (name, after) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
                (name.to_owned(), after)
            }
        };
        if member.is_empty() {
            return None;
        }
        members.push(member);
        rest = after;
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    use annals::prelude::*;

    use super::*;

    fn head() -> Snapshot {
        let thread = Store::memory().thread("trip").unwrap();
        let plan = Value::from(serde_json::json!({ "city": "Bern", "stops": [{ "name": "a/b" }] }));
        thread.write().set("plan", plan.clone()).set("plan.b", 1).commit().unwrap();
        thread.append("messages", [Message::human("hi").with_id("m.1")]).unwrap();
        thread.put("files", "a.txt", "one").unwrap();
        thread.write().put("files", "0", "zero").append_text("story", "Once").commit().unwrap();
        thread.append("list", ["a", "b", "c"]).unwrap();
        thread.append("left", ["1", "2", "3"].map(|id| Message::human(id).with_id(id))).unwrap();
        thread.append("left", [Message::remove("1")]).unwrap();
        thread.head().unwrap().unwrap()
    }

    #[test]
    fn an_entry_or_an_item_is_found_by_itself() {
        let at = head();
        let value = |text: &str| ValuePath::read(&at, text).unwrap().value(&at).unwrap().map(|value| value.to_json());
        assert_eq!(value("list[1]"), Some("b".into()));
        assert_eq!(value("list[3]"), None);
        assert_eq!(value("files/a.txt"), Some("one".into()));
        assert_eq!(value("files[0]"), Some("zero".into()), "a key of a map");
        assert_eq!(value("files[1]"), None);
        assert_eq!(value("story[0]"), None);
        assert_eq!(value("left[0].id"), Some("2".into()), "the first one is deleted");
        for (channel, member) in [("list", "1"), ("files", "a.txt")] {
            assert!(entry(&at, channel, member).unwrap().is_some(), "{channel} is not read as a whole");
        }
    }

    #[test]
    fn a_path_names_a_channel_an_item_or_a_part() {
        let at = head();
        let value = |text: &str| ValuePath::read(&at, text).unwrap().value(&at).unwrap().map(|value| value.to_json());
        assert_eq!(value("plan.city"), Some("Bern".into()));
        assert_eq!(value("plan.stops[0].name"), Some("a/b".into()));
        assert_eq!(value("plan/stops/0/name"), Some("a/b".into()));
        assert_eq!(value("plan.b"), Some(1.into()), "the longest name of a channel counts");
        assert_eq!(value("plan.stops[1]"), None);
        assert_eq!(value("messages#\"m.1\".content"), Some("hi".into()));
        assert_eq!(value("messages[0].content"), Some("hi".into()));
        assert_eq!(ValuePath::read(&at, "plan.stops[0].name").unwrap().pointer(), "/stops/0/name");
    }

    #[test]
    fn a_wrong_path_is_refused() {
        let at = head();
        for text in ["plan.", "plan[x]", "plan[0", "plan..a", "messages#", "messages#.content"] {
            let found = ValuePath::read(&at, text);
            assert!(matches!(found, Err(CommandFailure::Error { exit: 2, .. })), "{text}: {found:?}");
        }
        let missing = ValuePath::read(&at, "plans.city");
        assert!(matches!(missing, Err(CommandFailure::Error { exit: 3, .. })), "{missing:?}");
    }
}
