//! A measured dependency: points, and straight lines between them.

/// A function that never falls, given by points.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    points: Vec<(f64, f64)>,
}

/// Points that make no curve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the points of a curve must be at least two, finite and positive, at ascending places")]
pub struct BadCurve;

impl Curve {
    /// The curve through these points `(at, value)`. A point that is below the one before it, which only noise can
    /// explain, is raised to it.
    ///
    /// # Errors
    /// [`BadCurve`].
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Result<Self, BadCurve> {
        let mut points: Vec<(f64, f64)> = points.into_iter().collect();
        let fine = points.iter().all(|(at, value)| at.is_finite() && value.is_finite() && *at >= 0.0 && *value >= 0.0);
        if points.len() < 2 || !fine || points.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(BadCurve);
        }
        let mut highest = 0.0_f64;
        for (_, value) in &mut points {
            highest = highest.max(*value);
            *value = highest;
        }
        Ok(Self { points })
    }

    /// The value there: between two points on the line through them, before the first point the first value, behind
    /// the last one on the line through the last two.
    #[must_use]
    pub fn at(&self, place: f64) -> f64 {
        let (low, high) = self.around(place);
        if place <= low.0 {
            return low.1;
        }
        low.1 + (high.1 - low.1) * (place - low.0) / (high.0 - low.0)
    }

    /// The two points that [`Self::at`] goes by.
    #[must_use]
    pub fn around(&self, place: f64) -> ((f64, f64), (f64, f64)) {
        let above = self.points.iter().position(|(at, _)| *at >= place).unwrap_or(self.points.len());
        let high = above.clamp(1, self.points.len() - 1);
        (self.points[high - 1], self.points[high])
    }
}
