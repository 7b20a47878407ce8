//! The macro on tokens: the code that is emitted, and the errors.

fn expand(input: &str) -> syn::Result<String> {
    let input = format!("#[state(crate = ::annals)] {input}");
    let code = crate::expand::state(&syn::parse_str(&input).expect("the input is Rust"))?.to_string();
    syn::parse_str::<syn::File>(&code).expect("the output is Rust");
    Ok(squeeze(&code))
}

fn squeeze(code: &str) -> String {
    code.split_whitespace().collect()
}

fn assert_emits(input: &str, parts: &[&str]) {
    let code = expand(input).expect("the input is accepted");
    for part in parts {
        assert!(code.contains(&squeeze(part)), "{part}\nis not in\n{code}");
    }
}

/// Asserts that there is one error for each part, in order.
fn assert_refused(input: &str, parts: &[&str]) {
    let error = expand(input).expect_err("the input is refused");
    let errors: Vec<_> = error.into_iter().map(|error| error.to_string()).collect();
    assert_eq!(errors.len(), parts.len(), "{errors:?}");
    for (error, part) in errors.iter().zip(parts) {
        assert!(error.contains(part), "{part}\nis not in\n{error}");
    }
}

const CHAT: &str = r#"
    pub(crate) struct Chat {
        #[channel(messages)] messages: Messages,
        topic: Option<String>,
        #[channel(reduce = add)] total: i64,
        #[channel(reduce = self::merge, write = Vec<String>)] tags: BTreeSet<String>,
        #[channel(append)] lines: annals::channel::List<String>,
        #[channel(topic)] t: Vec<(u8, String)>,
        #[channel(topic, accumulate)] all: Vec<String>,
        #[channel(ephemeral)] e: Option<String>,
        #[channel(any, name = "other")] a: bool,
        #[channel(untracked)] #[serde(skip)] u: u64,
        r#type: String,
        #[channel(reduce = longest, starts_empty, private)] longest: String,
        #[channel(ephemeral, unguarded)] now: u8,
        #[channel(remaining_steps)] left: i64,
        #[channel(is_last_step)] is_last: bool,
    }
"#;

#[test]
fn every_field_is_one_call() {
    assert_emits(
        CHAT,
        &[
            "impl ::annals::state::State for Chat { type Update = ChatUpdate;",
            "Field::messages(\"messages\", |s: &Chat| &s.messages, |s: &mut Chat| &mut s.messages)",
            "Field::last(\"topic\", |s: &Chat| &s.topic, |s: &mut Chat| &mut s.topic)",
            "::annals::state::Field::reduce::<i64, i64, _>(\"total\", add, |s: &Chat| &s.total,",
            "Field::reduce::<BTreeSet<String>, Vec<String>, _>(\"tags\", self::merge, |s",
            "Field::append(\"lines\", |s",
            "Field::topic(\"t\", false, |s",
            "Field::topic(\"all\", true, |s",
            "Field::ephemeral(\"e\", true, |s",
            "Field::any(\"other\", |s: &Chat| &s.a,",
            "Field::untracked(\"u\", true, |s",
            "Field::last(\"type\", |s: &Chat| &s.r#type,",
            "Field::reduce_first::<String, _>(\"longest\", longest, |s: &Chat| &s.longest, |s: &mut Chat| &mut s.longest)
                .private()",
            "Field::ephemeral(\"now\", false, |s",
            "Field::remaining_steps(\"left\", |s: &mut Chat, value: i64| s.left = value, |s: &Chat| s.left)",
            "Field::is_last_step(\"is_last\", |s: &mut Chat, value: bool| s.is_last = value,",
        ],
    );
}

#[test]
fn the_update_has_a_method_for_every_field() {
    assert_emits(
        CHAT,
        &[
            "pub(crate) struct ChatUpdate { writes: ::annals::state::Writes, }",
            "pub fn messages(mut self, items: impl ::std::iter::IntoIterator<Item = ::annals::message::Message>) -> Self",
            "#[doc = \"Writes the channel `topic`.\"]",
            "pub fn topic(mut self, value: impl ::std::convert::Into<Option<String>>) -> Self {
                self.writes.push::<Option<String>>(1, ::std::convert::Into::into(value)); self }",
            "pub fn total(mut self, value: i64) -> Self { self.writes.push::<i64>(2, value); self }",
            "pub fn tags(mut self, value: impl ::std::convert::Into<Vec<String>>) -> Self",
            "self.writes.push::<Vec<String>>(3,",
            "pub fn lines(mut self, items: impl ::std::iter::IntoIterator<Item = String>) -> Self",
            "self.writes.push::<::std::vec::Vec<(u8, String)>>(5, items)",
            "#[doc = \"Writes the channel `other`.\"] pub fn a(",
            "pub fn r#type(mut self,",
            "pub fn overwrite_total(mut self, value: i64) -> Self {
                self.writes.push(2, ::annals::state::Overwrite::<i64>(value)); self }",
            "pub fn overwrite_lines(mut self, items: impl ::std::iter::IntoIterator<Item = String>) -> Self",
            "pub fn overwrite_messages(",
            "impl ::annals::state::IntoUpdate<Chat> for ChatUpdate",
        ],
    );
}

#[test]
fn a_state_with_parameters_has_an_update_with_the_same() {
    assert_emits(
        "pub struct Held<T: Value, const N: usize = 1> where Vec<T>: Clone { #[channel(append)] items: List<T> }",
        &[
            "impl<T: Value, const N: usize> ::annals::state::State for Held<T, N> where Vec<T>: Clone {
                type Update = HeldUpdate<T, N>;",
            "Field::append(\"items\", |s: &Held<T, N>| &s.items, |s: &mut Held<T, N>| &mut s.items)",
            "pub struct HeldUpdate<T: Value, const N: usize = 1> where Vec<T>: Clone {
                writes: ::annals::state::Writes, state: ::std::marker::PhantomData<fn() -> Held<T, N> >, }",
            "impl<T: Value, const N: usize> ::std::default::Default for HeldUpdate<T, N> where Vec<T>: Clone",
            "update.writes.of::<Held<T, N> >()",
        ],
    );
    assert_emits(
        "#[state(part_of = Whole<T>)] struct Part<T: Value> { item: T }",
        &["impl<T: Value> ::annals::state::Part<Whole<T> > for Part<T> {"],
    );
}

#[test]
fn what_is_no_struct_with_named_fields_is_refused() {
    assert_refused("enum A { B }", &["not an enum"]);
    assert_refused("union A { b: u8 }", &["not a union"]);
    assert_refused("struct A(u8);", &["without named fields"]);
    assert_refused("struct A;", &["without named fields"]);
    assert_refused("struct A<'a> { a: &'a str }", &["no references"]);
    assert_emits("struct A {}", &["::std::vec![]"]);
}

#[test]
fn wrong_attributes_are_refused_all_at_once() {
    assert_refused(
        r#"struct A {
            #[channel(lats)] a: u8,
            #[channel(last, append)] b: List<u8>,
            #[channel(any)] #[channel(reduce = add)] c: u8,
            #[channel(reduce)] d: u8,
            #[channel(append)] e: Lines,
            #[channel(topic)] f: [u8; 2],
            #[channel(write = u8)] g: u8,
            #[channel(accumulate)] h: Vec<u8>,
            #[channel(name = "")] i: u8,
            #[channel(name = "x")] j: u8,
            #[channel(name = "x")] k: u8,
            #[channel(name)] l: u8,
            #[channel] m: u8,
            #[channel(any, name = "y", name = "z")] n: u8,
            #[channel(append)] o: HashMap<u8, u8>,
            #[channel(reduce = 5)] p: u8,
            #[channel(last, unguarded)] q: u8,
            #[channel(starts_empty)] r: u8,
            #[channel(reduce = add, write = u8, starts_empty)] s: u16,
        }"#,
        &[
            "unknown word; a channel knows `last`, `messages`",
            "already `last`, so it cannot be `append`",
            "already `any`, so it cannot be `reduce`",
            "`reduce` needs a function",
            "write it as `List<T>`",
            "write it as `Vec<T>`",
            "`write` goes with `reduce",
            "`accumulate` goes with `topic`",
            "needs a name",
            "already the channel \"x\"",
            "`name` needs a text",
            "expected attribute arguments",
            "twice",
            "write it as `List<T>`",
            "`reduce` needs a function",
            "`unguarded` goes with `ephemeral` or `untracked`",
            "`starts_empty` goes with `reduce",
            "`starts_empty` goes with `reduce",
        ],
    );
}

#[test]
fn a_map_has_methods_that_put_remove_and_overwrite_and_a_text_one_that_appends() {
    assert_emits(
        "#[state(part_of = All)] struct Agent { #[channel(map)] files: KeyMap<i64>, #[channel(text)] log: Text }",
        &[
            "Field::map(\"files\", |s: &Agent| &s.files, |s: &mut Agent| &mut s.files)",
            "Field::text(\"log\", |s: &Agent| &s.log, |s: &mut Agent| &mut s.log)",
            "pub fn files(mut self, entries: impl ::std::iter::IntoIterator<Item = (impl
                ::std::convert::Into<::std::sync::Arc<str>>, i64)>) -> Self",
            "::annals::state::MapEntry::<i64>::put(key, value)",
            "pub fn remove_files(mut self, keys:",
            "pub fn overwrite_files(mut self, entries:",
            "pub fn log(mut self, part: impl ::std::convert::Into<::std::string::String>) -> Self",
            "pub fn overwrite_log(mut self, text:",
            "let update = update.files(part.files.to_btree_map());",
            "let update = update.log(::std::string::ToString::to_string(&part.log));",
        ],
    );
    assert_refused("struct A { #[channel(map)] files: Files }", &["write it as `KeyMap<T>`"]);
}

#[test]
fn a_part_is_tied_to_its_whole() {
    assert_emits(
        "#[state(part_of = Chat)] struct Answer { topic: String, #[channel(messages, name = \"all\")] messages: Messages }",
        &[
            "impl ::annals::state::Part<Chat> for Answer { fn of(state: &Chat) -> Self { Self {
                topic: ::std::clone::Clone::clone(&state.topic),",
            "::annals::state::named_writes(self.writes, &[\"topic\", \"all\"])",
            "let update = update.messages(part.messages.to_vec());",
            "impl ::annals::state::IntoOutput<Chat> for Answer",
        ],
    );
    assert_refused(
        "#[state(part = Chat)] struct A { a: u8 }",
        &["unknown word; a state knows `part_of = type` and `crate = path`"],
    );
    let twice = "#[state(part_of = B)] #[state(part_of = C)] struct A { a: u8 }";
    assert_refused(twice, &["a state is part of one other state"]);
}

#[test]
fn the_engine_is_named_by_the_attribute_or_by_the_manifest() {
    let own = |input: &str| crate::expand::state(&syn::parse_str(input).expect("the input is Rust"));
    let code =
        own("#[state(crate = crate::engine, part_of = Whole)] struct A { a: u8 }").expect("accepted").to_string();
    assert!(squeeze(&code).contains("impl crate::engine::state::Part<Whole>for A".replace(' ', "").as_str()), "{code}");
    assert!(!code.contains(":: annals"), "{code}");
    // This package depends on neither crate.
    let error = own("struct A { a: u8 }").expect_err("there is no engine");
    assert!(error.to_string().contains("`#[state(crate = path::to::annals)]`"), "{error}");
    let twice = own("#[state(crate = a)] #[state(crate = b)] struct A { a: u8 }").expect_err("refused");
    assert!(twice.to_string().contains("`crate` is given twice"), "{twice}");
}
