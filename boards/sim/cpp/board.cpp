// A board: the top module, the SDRAM chip at its pins, and a host at its serial line.
//
// Requests come in on the standard input, answers go out; numbers are little-endian:
//   X u32 n, n bytes, u32 m, u64 limit    send n bytes; then wait for m bytes, at most so many cycles
//                                         of the accelerator behind the last one sent
//                                         -> u32 count, the bytes
//   R u64 cycles                          let time pass                        -> u32 0
//   S                                     what there is to say of the chip     -> u32 length, text
//   P u32 address, u32 n, n bytes         put bytes into the chip, past its pins           -> u32 0
//   G u32 address, u32 n                  the chip's bytes, past its pins    -> u32 n, the bytes
// Time passes only for X and R.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>

#include "chip.h"
#include "Vtop.h"
#include "Vtop___024root.h"
#include "verilated.h"

// The host's end of the serial line: any bit rate, to within a cycle of the accelerator's clock.
class Serial {
    static constexpr double BIT = double(CYCLES_PER_1000_BITS) / 1000;
    double sending = 0, receiving = 0;
    unsigned out = 1, out_left = 0, in = 0, in_left = 0;
    bool before = true;

   public:
    std::deque<uint8_t> to_send;
    std::string received;
    uint64_t framing_errors = 0;
    bool idle() const { return to_send.empty() && !out_left; }

    // One cycle: the level to put on the line, and the level found there.
    bool cycle(bool level) {
        if (!out_left && !to_send.empty()) {
            out = 1u << 9 | unsigned(to_send.front()) << 1;
            to_send.pop_front();
            out_left = 10;
            sending += BIT;
        }
        bool line = out_left ? out & 1 : 1;
        if (out_left && (sending -= 1) < 0.5) {
            out >>= 1;
            if (--out_left) sending += BIT;
        }
        if (!in_left && before && !level) in_left = 10, receiving = BIT / 2;
        before = level;
        if (in_left && (receiving -= 1) <= 0) {
            receiving += BIT;
            if (in_left > 1) in = in >> 1 | (level ? 0x100 : 0);
            else if (level) received += char(in >> 1);
            else framing_errors++;
            in_left--;
        }
        return line;
    }
};

class Board {
    VerilatedContext context;
    Vtop top{&context};
    Chip chip;
    bool chip_clock = false;
    std::string wrong, interrupts;
    uint64_t cycle = 0;
    bool interrupt = false;

    void half(bool high) {
        top.rootp->PLL_FAST = high;
        top.eval();
        if (top.sdram_clk == chip_clock) return;
        chip_clock = top.sdram_clk;
        if (!chip_clock) return;
        ChipPins pins;
        pins.cke = top.sdram_cke, pins.cs_n = top.sdram_cs_n;
        pins.ras_n = top.sdram_ras_n, pins.cas_n = top.sdram_cas_n, pins.we_n = top.sdram_we_n;
        pins.ba = top.sdram_ba, pins.a = top.sdram_a, pins.dqm = top.sdram_dqm;
        pins.dq = top.sdram_dq__out, pins.dq_driven = top.sdram_dq__en != 0;
        if (top.sdram_dq__en != 0 && top.sdram_dq__en != 0xffff)
            wrong = "some of the data pins are driven, some are not";
        chip.edge(pins);
        top.sdram_dq = chip.dq;
    }

   public:
    Serial serial;

    Board() {
        top.uart_rx = 1;
        top.eval();
        for (int i = 0; i < 8; i++) tick();
        top.rootp->PLL_LOCKED = 1;
        // The reset ends a few cycles later; a real host comes much later.
        for (int i = 0; i < 64; i++) tick();
        // What the line did until then is no byte.
        serial = Serial();
    }

    // A cycle of the accelerator.
    void tick() {
        top.uart_rx = serial.cycle(top.uart_tx);
        for (unsigned i = 0; i < RATIO; i++) {
            top.rootp->PLL_SLOW = i == 0;
            half(true);
            half(false);
        }
        cycle++;
#ifdef INTERRUPT
        if (INTERRUPT && !interrupt) interrupts += " " + std::to_string(cycle);
        interrupt = INTERRUPT;
#endif
    }

    // Bytes of the chip, in the order of the controller's addresses.
    uint8_t* memory(uint32_t address, uint32_t size) {
        if (address > chip.size() || size > chip.size() - address) exit(3);
        return chip.bytes() + address;
    }

    std::string report() const {
        std::string text = "cycles " + std::to_string(cycle) + "\nviolations " +
                           std::to_string(chip.violations) + "\nrefreshes " +
                           std::to_string(chip.refresh_count()) + "\ntransfers " +
                           std::to_string(chip.transfers) + "\nframing_errors " +
                           std::to_string(serial.framing_errors) + "\ninterrupts" + interrupts + "\n";
        if (chip.violations) text += "text " + chip.report() + "\n";
        if (!wrong.empty()) text += "text " + wrong + "\n";
        return text;
    }
};

template <typename T>
static T number() {
    T value;
    if (fread(&value, sizeof value, 1, stdin) != 1) exit(0);
    return value;
}

static void answer(const std::string& text) {
    uint32_t size = text.size();
    fwrite(&size, sizeof size, 1, stdout);
    fwrite(text.data(), 1, text.size(), stdout);
    fflush(stdout);
}

int main() {
    auto board = std::make_unique<Board>();
    for (;;) switch (number<uint8_t>()) {
        case 'X': {
            for (uint32_t left = number<uint32_t>(); left; left--)
                board->serial.to_send.push_back(number<uint8_t>());
            auto wanted = number<uint32_t>();
            auto limit = number<uint64_t>();
            while (!board->serial.idle()) board->tick();
            while (board->serial.received.size() < wanted && limit--) board->tick();
            std::string text;
            text.swap(board->serial.received);
            answer(text);
            break;
        }
        case 'R':
            for (auto left = number<uint64_t>(); left; left--) board->tick();
            answer("");
            break;
        case 'P': {
            auto address = number<uint32_t>(), size = number<uint32_t>();
            auto place = board->memory(address, size);
            for (uint32_t i = 0; i < size; i++) place[i] = number<uint8_t>();
            answer("");
            break;
        }
        case 'G': {
            auto address = number<uint32_t>(), size = number<uint32_t>();
            auto place = board->memory(address, size);
            answer(std::string(place, place + size));
            break;
        }
        case 'S':
            answer(board->report());
            break;
        default:
            return 2;
    }
}
