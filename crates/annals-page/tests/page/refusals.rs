//! Requests that are refused: wrong tokens, hosts, origins, methods and addresses.

use super::*;

fn status(page: &Page, request: PageRequest) -> u16 {
    let response = page.handle(&request);
    if response.status >= 400 {
        assert!(!response.text().contains("Bern"), "a refusal shows nothing of the store");
    }
    assert!(
        response.value_of("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert_eq!(response.value_of("x-content-type-options"), Some("nosniff"));
    response.status
}

#[test]
fn a_thousand_wrong_tokens_are_refused() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    for n in 0..1_000_usize {
        let wrong = match n % 4 {
            0 => format!("{n:048x}"),
            1 => TOKEN[..n % TOKEN.len()].to_owned(),
            2 => format!("{TOKEN}{n}"),
            _ => TOKEN.to_uppercase() + &n.to_string(),
        };
        let base = PageRequest::get("/t/trip/talk").header("host", HOST);
        assert_eq!(status(&page, base.clone().header("authorization", format!("Bearer {wrong}"))), 403);
        assert_eq!(status(&page, base.clone().header("cookie", format!("annals-4000={wrong}"))), 403);
        if !wrong.is_empty() {
            assert_eq!(status(&page, PageRequest::get(format!("/?token={wrong}")).header("host", HOST)), 403);
        }
    }
    assert_eq!(status(&page, PageRequest::get("/").header("host", HOST)), 403);
    assert_eq!(status(&page, request("/").header("host", HOST)), 400, "two hosts");
}

#[test]
fn the_link_gives_a_cookie_and_an_address_without_the_token() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    assert_eq!(page.link(), format!("http://{HOST}/?token={TOKEN}"));
    let welcome = page.handle(&PageRequest::get(format!("/t/trip?token={TOKEN}")).header("host", HOST));
    assert_eq!((welcome.status, welcome.value_of("location")), (303, Some("/t/trip")));
    let cookie = welcome.value_of("set-cookie").unwrap();
    assert_eq!(cookie, format!("annals-4000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"));
    let pair = cookie.split(';').next().unwrap();
    let with = PageRequest::get("/t/trip").header("host", HOST).header("cookie", format!("a=b; {pair}"));
    assert_eq!(page.handle(&with).status, 200);
    let elsewhere = PageRequest::get(format!("//evil.example/?token={TOKEN}")).header("host", HOST);
    assert_eq!(page.handle(&elsewhere).value_of("location"), Some("/evil.example/"));
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let bearer = format!("Bearer {TOKEN}");
    for host in [
        "evil.example",
        "evil.example:4000",
        "127.0.0.1",
        "127.0.0.1:4001",
        "127.0.0.1.evil.example:4000",
        "",
        "0.0.0.0:4000",
    ] {
        let request = PageRequest::get("/").header("host", host).header("authorization", &*bearer);
        assert_eq!(status(&page, request), 403, "{host}");
    }
    assert_eq!(status(&page, PageRequest::get("/").header("authorization", &*bearer)), 400);
    for origin in [
        "http://evil.example",
        "null",
        "https://127.0.0.1:4000",
        "http://127.0.0.1:4001",
        "http://127.0.0.1:4000.evil.example",
        "",
    ] {
        assert_eq!(status(&page, request("/").header("origin", origin)), 403, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(status(&page, request("/").header("sec-fetch-site", site)), 403, "{site}");
    }
    for (host, origin) in [(HOST, "http://127.0.0.1:4000"), ("localhost:4000", "http://localhost:4000")] {
        let own = PageRequest::get("/").header("host", host).header("origin", origin).header("authorization", &*bearer);
        assert_eq!(page.handle(&own.header("sec-fetch-site", "same-origin")).status, 200);
    }
}

#[test]
fn tricks_with_addresses_and_headers_find_nothing() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    for target in [
        "/../../etc/passwd",
        "/t/../../etc/passwd",
        "/t/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/t/trip/state/../../..",
        "/page.css/../page.rs",
        "/assets/page.css",
        "/t",
        "/t/",
        "/t/nothing",
        "/t/trip@ffffffffffff",
        "/t/trip/state/nothing",
        "/t/trip/state/messages/99",
        "/t/trip/state/__error__",
        "/t/trip/step/9999",
        "/search/x",
    ] {
        assert!([400, 404].contains(&status(&page, request(target))), "{target}");
    }
    for target in [
        "/%",
        "/t/%ff",
        "/t/%00",
        "/?q=%zz",
        "/t/trip@{",
        "/stats?last=0",
        "/stats?last=99999999",
        "/stats?by=x",
        "/?status=x",
        "/?after=x",
        "/runs?status=x",
        "/search?q=a&after=x",
        "/diff/trip..",
        "/t/trip/step/x",
    ] {
        let status = status(&page, request(target));
        assert!([200, 400, 404].contains(&status), "{target}: {status}");
        assert!(status != 200 || target == "/diff/trip..", "{target}");
    }
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH"] {
        let mut request = request("/");
        request.method = method.to_owned();
        assert_eq!(status(&page, request), 405, "{method}");
    }
    let long = format!("/search?q={}", "a".repeat(5_000));
    assert_eq!(status(&page, request(&long)), 400);
}

#[test]
fn a_failure_has_its_json() {
    let page = page_of(&Store::memory());
    let response = get(&page, "/t/nothing.json");
    assert_eq!(response.status, 404);
    let document: Json = serde_json::from_str(&response.text()).unwrap();
    assert_eq!(document["error"]["code"], "thread_not_found");
}
