//! The page at `/`: what a worker is doing, and a box to explain a user. Its files are in the binary; it loads nothing
//! from anywhere else. It is no part of the OpenAPI document: it is for people, and changes without notice.

mod events;

use std::sync::Arc;

use axum::{
    http::{HeaderName, header},
    response::IntoResponse,
    routing::{MethodRouter, get},
};

use super::Api;
pub(super) use events::Viewers;

struct Asset {
    path: &'static str,
    media_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: [Asset; 7] = [
    Asset { path: "/", media_type: HTML, text: include_str!("page/index.html") },
    Asset { path: "/page/page.css", media_type: CSS, text: include_str!("page/page.css") },
    Asset { path: "/page/main.js", media_type: SCRIPT, text: include_str!("page/main.js") },
    Asset { path: "/page/live.js", media_type: SCRIPT, text: include_str!("page/live.js") },
    Asset { path: "/page/chart.js", media_type: SCRIPT, text: include_str!("page/chart.js") },
    Asset { path: "/page/explain.js", media_type: SCRIPT, text: include_str!("page/explain.js") },
    Asset { path: "/page/icon.svg", media_type: "image/svg+xml", text: include_str!("page/icon.svg") },
];

/// What a browser may do with the page: load its own files and ask its own server, nothing else. No script or style in
/// the document itself, so that text that slips into it is never run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Arc<Api>>)> {
    let files = ASSETS.iter().map(|asset| (asset.path, get(move || file(asset))));
    files.chain([("/events", get(events::events))]).collect()
}

async fn file(asset: &'static Asset) -> impl IntoResponse {
    (HEADERS, [(header::CONTENT_TYPE, asset.media_type)], asset.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_script_or_style_that_its_policy_would_stop() {
        let html = ASSETS[0].text;
        for inline in [" style=", "<style", "onclick=", "javascript:", "<script>"] {
            assert!(!html.contains(inline), "{inline} in index.html");
        }
        for asset in &ASSETS {
            for other in ["http://", "https://", "innerHTML", "eval(", "document.write"] {
                let text = asset.text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(other), "{other} in {}", asset.path);
            }
        }
    }
}
