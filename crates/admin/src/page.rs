//! The dashboard: one page, which asks the API for everything that it shows.

use crate::answer::{Answer, Failure};
use crate::control::Listener;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The scripts of the views by their names.
const VIEWS: [(&str, &str); 17] = [
    ("access.js", include_str!("page/views/access.js")),
    ("account.js", include_str!("page/views/account.js")),
    ("bans.js", include_str!("page/views/bans.js")),
    ("busiest.js", include_str!("page/views/busiest.js")),
    ("clients.js", include_str!("page/views/clients.js")),
    ("explain.js", include_str!("page/views/explain.js")),
    ("groups.js", include_str!("page/views/groups.js")),
    ("log.js", include_str!("page/views/log.js")),
    ("messages.js", include_str!("page/views/messages.js")),
    ("mqtt.js", include_str!("page/views/mqtt.js")),
    ("overview.js", include_str!("page/views/overview.js")),
    ("page.js", include_str!("page/views/page.js")),
    ("queue.js", include_str!("page/views/queue.js")),
    ("server.js", include_str!("page/views/server.js")),
    ("settings.js", include_str!("page/views/settings.js")),
    ("trace.js", include_str!("page/views/trace.js")),
    ("try.js", include_str!("page/views/try.js")),
];

/// The page. Its scripts may open WebSockets to the listeners at the host of the page, for the MQTT client among the views.
pub(crate) fn page(host: &str, listeners: &[Listener]) -> Answer {
    Answer::of(HTML, include_str!("page/index.html")).with_sockets_to(host, listeners.iter())
}

pub(crate) fn script() -> Answer {
    Answer::of(SCRIPT, include_str!("page/app.js"))
}

pub(crate) fn style() -> Answer {
    Answer::of("text/css; charset=utf-8", include_str!("page/style.css"))
}

/// The script of a view.
pub(crate) fn view(name: &str) -> Result<Answer, Failure> {
    let found = VIEWS.iter().find(|(known, _)| *known == name);
    let (_, script) = found.ok_or_else(|| Failure::not_found("there is no such script"))?;
    Ok(Answer::of(SCRIPT, *script))
}
