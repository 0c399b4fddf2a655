// The memory behind the bus: pages that come into being when they are touched.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "pins.h"

constexpr uint64_t PAGE_BYTES = 4096;

enum Fill : uint32_t { FILL_RANDOM, FILL_ZEROS, FILL_MODERATE, FILL_A5 };

class Memory {
    struct Page {
        uint8_t bytes[PAGE_BYTES];
    };
    std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
    std::vector<std::unique_ptr<Page>> spare;
    uint32_t fill = FILL_A5;
    uint64_t seed = 0;
    uint64_t latest = ~uint64_t(0);
    uint8_t* latest_bytes = nullptr;

    void contents(uint64_t number, uint8_t* bytes) const {
        if (fill == FILL_ZEROS || fill == FILL_A5) {
            memset(bytes, fill == FILL_A5 ? 0xA5 : 0, PAGE_BYTES);
            return;
        }
        Random random(seed ^ (number * 0xD1342543DE82EF95u));
        for (uint64_t at = 0; at < PAGE_BYTES; at += 8) {
            uint64_t word = random.next();
            // Numbers near one in every float format that is stored in 16 or 32 bits.
            if (fill == FILL_MODERATE)
                word = (word & 0x80FF80FF80FF80FFu) | 0x3F003F003F003F00u;
            memcpy(bytes + at, &word, 8);
        }
    }

   public:
    // Forget everything; from now on bytes that nobody has written are as `fill` says.
    void reset(uint32_t new_fill, uint64_t new_seed) {
        for (auto& entry : pages) spare.push_back(std::move(entry.second));
        pages.clear();
        fill = new_fill, seed = new_seed, latest = ~uint64_t(0);
    }

    uint8_t* at(uint64_t address) {
        uint64_t number = address / PAGE_BYTES;
        if (number != latest) {
            auto& page = pages[number];
            if (!page) {
                if (spare.empty()) spare.emplace_back(new Page);
                page = std::move(spare.back());
                spare.pop_back();
                contents(number, page->bytes);
            }
            latest = number, latest_bytes = page->bytes;
        }
        return latest_bytes + address % PAGE_BYTES;
    }

    void load(uint64_t address, const uint8_t* bytes, uint64_t count) {
        for (uint64_t done = 0; done < count;) {
            uint64_t part = std::min(count - done, PAGE_BYTES - (address + done) % PAGE_BYTES);
            memcpy(at(address + done), bytes + done, part);
            done += part;
        }
    }

    // The first of `count` bytes that is not the one expected, or `count`.
    uint64_t differs(uint64_t address, const uint8_t* bytes, uint64_t count) {
        for (uint64_t done = 0; done < count;) {
            uint64_t part = std::min(count - done, PAGE_BYTES - (address + done) % PAGE_BYTES);
            const uint8_t* here = at(address + done);
            if (memcmp(here, bytes + done, part))
                for (uint64_t i = 0;; i++)
                    if (here[i] != bytes[done + i]) return done + i;
            done += part;
        }
        return count;
    }

    // An address outside [base, base + size) whose byte has changed, or ~0: the bus checker looks
    // at requests, this at what has become of the memory.
    uint64_t changed_outside(uint64_t base, uint64_t size) {
        uint8_t fresh[PAGE_BYTES];
        for (auto& entry : pages) {
            uint64_t first = entry.first * PAGE_BYTES;
            if (first >= base && first - base + PAGE_BYTES <= size) continue;
            contents(entry.first, fresh);
            for (uint64_t i = 0; i < PAGE_BYTES; i++) {
                bool inside = first + i >= base && first + i - base < size;
                if (!inside && entry.second->bytes[i] != fresh[i]) return first + i;
            }
        }
        return ~uint64_t(0);
    }
};
