//! The places by which users come in.

use weir_core::pressure::PressureState;

use super::*;

#[test]
fn nobody_comes_in_by_places_that_others_may_have() {
    let all = RECORDS.unsigned_abs();
    for (usable_until, come_in, left) in [(Duration::MAX, all, 500 - all), (Duration::ZERO, 0, 500)] {
        let (filter, action) = (Filter::default(), Action::Suppress);
        let rule = PressureRule { max_active_users: 1_000, window_minutes: 30, filter, action };
        let (pressure, _inbox) = Pressure::new();
        let state = Arc::new(PressureState::new(&rule));
        state.places.add(500);
        state.places.renew(usable_until);
        pressure.replace(Some(Arc::clone(&state)));
        let (end, world) = run(World { pressed: Some((rule, pressure)), ..World::default() });
        end.unwrap();
        each_once(&world);
        assert_eq!((state.places.left(), state.places.held()), (left, left), "usable until {usable_until:?}");
        let active = state.users.estimate();
        assert!(active.abs_diff(come_in) <= come_in / 50, "{active} of {come_in} are active");
    }
}
