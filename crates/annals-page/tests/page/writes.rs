//! Writes under `allow_write`: resume values and forks, and the requests that may not write.

use annals::state::DynState;
use annals_graph::prelude::*;

use super::screens::waiting;
use super::*;

pub(crate) fn writing(store: &Store) -> Page {
    Page::new(store.clone(), options().allow_write(true)).unwrap()
}

/// Returns the token of the forms of a screen.
pub(crate) fn form_token(page: &Page, target: &str) -> String {
    let shown = html(page, target);
    shown.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

pub(crate) fn post(target: &str, body: String) -> PageRequest {
    let post = PageRequest::post(target, body).header("host", HOST).header("authorization", format!("Bearer {TOKEN}"));
    post.header("origin", format!("http://{HOST}"))
}

#[test]
fn a_resume_value_is_stored_and_the_next_run_takes_it() {
    let store = Store::memory();
    let graph: CompiledGraph<DynState> = waiting(&store, "booking");
    let page = writing(&store);
    let token = form_token(&page, "/runs");
    let shown = html(&page, "/runs");
    let action = shown.split("method=\"post\" action=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(action.ends_with("/resume"));
    let value = "%7B%22approved%22%3Atrue%7D";
    let stored = page.handle(&post(action, format!("form={token}&value={value}")));
    assert_eq!((stored.status, stored.value_of("location")), (303, Some("/runs?status=running")));
    assert!(html(&page, "/runs?status=running").contains("booking"), "its task is due");
    let second = page.handle(&post(action, format!("form={token}&value=second")));
    assert_eq!(second.status, 409, "one interrupt takes one value: {}", second.text());

    let thread = store.thread("booking").unwrap();
    let outcome = graph.invoke(&thread, Input::Continue).unwrap();
    assert!(outcome.is_done());
    let value = thread.head().unwrap().unwrap().get("n").unwrap().unwrap();
    assert_eq!(value.to_json(), json!({ "approved": true }));
    let late = page.handle(&post(action, format!("form={token}&value=late")));
    assert_eq!(late.status, 409, "{}", late.text());
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn a_fork_is_previewed_and_made() {
    let store = Store::memory();
    trip(&store);
    let page = writing(&store);
    let target = "/t/trip/fork?name=by+plane&channel=plan&value=%7B%22city%22%3A%22Rome%22%7D";
    let preview = html(&page, target);
    for text in ["Rome", "Basel", "annals fork", "--name &#39;by plane&#39;", "annals update", "Make the fork"] {
        assert!(preview.contains(text), "{text}: {preview}");
    }
    assert!(store.thread("by plane").unwrap().head().unwrap().is_none(), "a preview writes nothing");
    let token = form_token(&page, target);
    let body = format!("form={token}&name=by+plane&channel=plan&value=%7B%22city%22%3A%22Rome%22%7D");
    let made = page.handle(&post("/t/trip/fork", body.clone()));
    assert_eq!((made.status, made.value_of("location")), (303, Some("/t/by%20plane")));
    let fork = store.thread("by plane").unwrap().head().unwrap().unwrap();
    assert_eq!(fork.get("plan").unwrap().unwrap().to_json(), json!({ "city": "Rome" }));
    assert_eq!(fork.len("messages").unwrap(), store.point("trip").unwrap().len("messages").unwrap());
    assert!(html(&page, "/t/by%20plane").contains("forked from"));
    assert!(html(&page, "/t/trip").contains("forked: "));
    assert_eq!(page.handle(&post("/t/trip/fork", body)).status, 409, "the thread exists");
    let list = page.handle(&post("/t/trip/fork", format!("form={token}&name=x&channel=messages&value=1")));
    assert_eq!(list.status, 400);
    assert!(store.thread("x").unwrap().head().unwrap().is_none());
}

#[test]
fn writes_from_elsewhere_are_refused() {
    let store = Store::memory();
    trip(&store);
    let page = writing(&store);
    let token = form_token(&page, "/t/trip/fork");
    let body = format!("form={token}&name=stolen");
    let bare = PageRequest::post("/t/trip/fork", body.clone()).header("host", HOST);
    let bearer = format!("Bearer {TOKEN}");
    let own = format!("http://{HOST}");
    for (name, request, status) in [
        ("no token", bare.clone().header("origin", &*own), 403),
        ("no origin", bare.clone().header("authorization", &*bearer), 403),
        ("another origin", bare.clone().header("authorization", &*bearer).header("origin", "http://evil.example"), 403),
        ("the null origin", bare.clone().header("authorization", &*bearer).header("origin", "null"), 403),
        ("another site", post("/t/trip/fork", body.clone()).header("sec-fetch-site", "cross-site"), 403),
        ("no form token", post("/t/trip/fork", "name=stolen".into()), 403),
        ("a wrong form token", post("/t/trip/fork", "form=x&name=stolen".into()), 403),
        (
            "the token in the address",
            PageRequest::post(format!("/t/trip/fork?token={TOKEN}"), body.clone()).header("host", HOST),
            403,
        ),
        (
            "not a form",
            {
                let mut request = post("/t/trip/fork", body.clone());
                request.headers.retain(|(name, _)| name != "content-type");
                request.header("content-type", "text/plain")
            },
            415,
        ),
        ("a screen that does not write", post("/t/trip", body.clone()), 405),
    ] {
        let response = page.handle(&request);
        assert_eq!(response.status, status, "{name}: {}", response.text());
    }
    let reading = page_of(&store);
    assert_eq!(reading.handle(&post("/t/trip/fork", body)).status, 403);
    assert!(!html(&reading, "/t/trip/fork").contains("Make the fork"));
    assert!(store.thread("stolen").unwrap().head().unwrap().is_none());
}
