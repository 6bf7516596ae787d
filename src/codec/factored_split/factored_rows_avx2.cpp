// Between elements and their values, for AVX2.
#include "codec/factored_split/factored_rows_kernel.hpp"

#if defined(__x86_64__)
#include "codec/factored_split/factored_rows_loop.hpp"

namespace bitsnap::codec {

void sum_row_avx2(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                  const FactoredRange& range, std::int32_t* columns, RowSums& sums) noexcept {
  sum_by_geometry(elements, count, geometry, range, columns, sums);
}

void take_off_scales_avx2(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                          std::uint16_t row, const std::uint16_t* columns, std::uint16_t* values,
                          std::uint8_t* low) noexcept {
  take_off_by_geometry(elements, count, geometry, row, columns, values, low);
}

void put_on_scales_avx2(const std::uint16_t* values, const std::uint8_t* low, std::size_t count,
                        const FactoredGeometry& geometry, std::uint16_t row, const std::uint16_t* columns,
                        std::uint8_t* elements) noexcept {
  put_on_by_geometry(values, low, count, geometry, row, columns, elements);
}

}  // namespace bitsnap::codec
#endif
