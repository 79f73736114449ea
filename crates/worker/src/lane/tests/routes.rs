//! The permits of routes on their way through a lane.

use weir_core::{document::Format, policy_file::parse_policy, routes::Pool};

use super::*;

/// A world whose intents take a route with so many permits.
fn paced(permits: u64) -> (World, Arc<Routes>) {
    let text = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n[[routes]]\nname = \"all\"\nrate = 1\n";
    let policy = parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap();
    let routes = Routes::new();
    routes.state("all").grant(permits, 0, Duration::MAX);
    (World { routes: policy.routes, permits: Some(Arc::clone(&routes)), ..World::default() }, routes)
}

#[test]
fn a_permit_is_spent_once_its_intent_is_committed_and_goes_back_where_it_is_not() {
    let (all, granted) = (RECORDS.unsigned_abs(), 300);
    let refused = [Fate::Refused, Fate::Refused, Fate::Refused];
    for (commits, revoke_every) in [(&[][..], None), (&refused[..], None), (&refused[..1], Some(7))] {
        let (world, routes) = paced(granted);
        let (end, world) = run(World { commits: commits.iter().copied().collect(), revoke_every, ..world });
        end.unwrap();
        each_once(&world);
        let state = routes.state("all");
        let left = state.left(Pool::General, Duration::ZERO);
        assert_eq!((state.spent(), left, state.held()), (all, granted - all, granted - all));
    }
}
