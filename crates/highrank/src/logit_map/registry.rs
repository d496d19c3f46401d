//! The macro that turns the list of logit maps into every type and every choice among all of them.

/// Generates, from one line a map:
///
/// * the map's module, which is its file, and the re-export of the type with the map's name;
/// * [`LogitMapConfig`](super::LogitMapConfig) and [`LogitMap`](super::LogitMap);
/// * what these ask of the one map that they hold.
///
/// A line reads `Name { field: type = example, .. }: file [gpu], "formula";`. The fields are those of the file's `Function`, and the
/// name's type has a field or a method of each field's name; a map without fields has no braces. `[gpu]` says that the file
/// has a module of this name with a body for kernels.
macro_rules! logit_maps {
    ($(
        $Map:ident $({ $($field:ident: $type:ident = $example:expr),+ })?: $file:ident $([$gpu:ident])?, $formula:literal;
    )+) => {
        $(
            pub(crate) mod $file;
            pub use $file::$Map;
        )+

        /// Which logit map a head applies.
        #[derive(Config, Debug, PartialEq, Copy)]
        #[non_exhaustive]
        pub enum LogitMapConfig {
            $(
                #[doc = concat!("`f(z) = ", $formula, "`, see [`", stringify!($Map), "`].")]
                $Map $({ $(
                    #[doc = concat!("See [`", stringify!($Map), "::", stringify!($field), "`].")]
                    $field: $type,
                )+ })?,
            )+
        }

        /// One of the maps as the `Function` of its file.
        enum PlainMap {
            $($Map($file::Function),)+
        }

        impl LogitMapConfig {
            fn plain(self) -> PlainMap {
                match self {
                    $(Self::$Map $({ $($field),+ })? => PlainMap::$Map($file::Function { $($($field),+)? }),)+
                }
            }

            /// One of each map, for tests of what holds of all.
            #[doc(hidden)]
            pub fn examples() -> Vec<Self> {
                vec![$(Self::$Map $({ $($field: $example),+ })?),+]
            }

            /// Checks the ranges of all fields.
            pub(crate) fn validate(&self) -> Result<(), HeadError> {
                match self.plain() { $(PlainMap::$Map(map) => PortableMap::validate(map),)+ }
            }

            /// Creates the map with its starting parameters on a device, of its default float type or of a given one.
            ///
            /// # Panics
            /// If a field is outside of its range, which the message says.
            pub fn init(&self, on: impl Into<TensorCreationOptions>) -> LogitMap {
                self.validate().or_panic("LogitMapConfig::init");
                let on = on.into();
                match self.plain() { $(PlainMap::$Map(map) => LogitMap::$Map(MapModule::new(map, on)),)+ }
            }
        }

        /// An increasing function applied to every logit, with its parameters.
        ///
        /// Should be created with [`LogitMapConfig`].
        // A head has one map: the size of the largest variant costs nothing, a box would only add a look-up.
        #[allow(clippy::large_enum_variant)]
        #[derive(Module, Debug)]
        #[module(custom_display)]
        #[non_exhaustive]
        pub enum LogitMap {
            $(
                #[doc = concat!("See [`", stringify!($Map), "`].")]
                $Map($Map),
            )+
        }

        impl LogitMap {
            /// The function itself, without its parameters.
            pub(crate) fn function(&self) -> LogitMapConfig {
                match self {
                    $(Self::$Map(map) => {
                        let $file::Function { $($($field),+)? } = MapModule::function(map);
                        LogitMapConfig::$Map $({ $($field),+ })?
                    })+
                }
            }

            /// Checks that parameters fit each other and the decoder, and that the type of sums holds all numbers.
            pub(crate) fn check(&self, checks: &TensorChecks) -> Result<(), HeadError> {
                match self { $(Self::$Map(map) => MapModule::check(map, checks),)+ }
            }

            /// The parameters packed in one vector, as [`function`](Self::function) takes them, differentiable; `None` for a map without any.
            pub(crate) fn packed_params(&self) -> Option<Tensor<1>> {
                match self { $(Self::$Map(map) => MapModule::packed_params(map),)+ }
            }
        }

        impl ModuleDisplay for LogitMap {
            fn custom_settings(&self) -> Option<DisplaySettings> {
                DisplaySettings::new().with_new_line_after_attribute(false).optional()
            }

            fn custom_content(&self, content: Content) -> Option<Content> {
                match self {
                    $(Self::$Map(map) => {
                        let $file::Function { $($($field),+)? } = MapModule::function(map);
                        let content = content.set_top_level_type(stringify!($Map));
                        content $($(.add(stringify!($field), &$field))+)?
                    })+
                }
                .optional()
            }
        }

        /// The function itself: without its parameters, which come packed in one vector.
        ///
        /// A logit is looked up in the function's *table*, made from the parameters once a call by [`table`](Self::table). Most
        /// maps have the parameters themselves as their table. Each map's type says how its parameters are packed, and what its
        /// table is where it has one of its own.
        impl LogitMapConfig {
            /// Length of the packed parameter vector; 0 for a map without parameters.
            pub(crate) fn num_params(&self) -> usize {
                match self.plain() { $(PlainMap::$Map(map) => PortableMap::num_params(map),)+ }
            }

            /// The table of packed parameters, differentiable by composition.
            pub(crate) fn table<B: Backend>(&self, params: Floats<B>) -> Floats<B> {
                match self.plain() { $(PlainMap::$Map(map) => PortableMap::table(map, params),)+ }
            }

            /// The gradient of the packed parameters for that of their table.
            pub(crate) fn table_vjp<B: Backend>(&self, params: &Floats<B>, d_table: Floats<B>) -> Floats<B> {
                match self.plain() { $(PlainMap::$Map(map) => PortableMap::table_vjp(map, params, d_table),)+ }
            }

            /// `f(z)`, differentiable by composition.
            ///
            /// # Panics
            /// If a map with parameters gets no table.
            pub(crate) fn apply<B: Backend>(&self, z: Floats<B>, table: Option<&Floats<B>>) -> Floats<B> {
                match self.plain() { $(PlainMap::$Map(map) => PortableMap::apply(map, z, table),)+ }
            }

            /// The gradient with respect to the logits and the table of `Σ g ∘ f(z)`.
            ///
            /// # Shapes
            /// - z, g: `[rows, V]`
            /// - returns: `[rows, V]` and that of the table
            ///
            /// # Panics
            /// If a map with parameters gets no table.
            pub(crate) fn vjp<B: Backend>(
                &self,
                z: Floats<B>,
                table: Option<&Floats<B>>,
                g: Floats<B>,
            ) -> (Floats<B>, Option<Floats<B>>) {
                match self.plain() { $(PlainMap::$Map(map) => PortableMap::vjp(map, z, table, g),)+ }
            }
        }

        #[cfg(feature = "flex")]
        cpu::cpu_maps! { $($Map: $file;)+ }
        #[cfg(feature = "gpu")]
        gpu::gpu_maps! { $($Map: $file $([$gpu])?;)+ }
    };
}

pub(super) use logit_maps;
