// Commands from the standard input to the chip, to see what its checks say. A line for each:
//   nop N          let N cycles pass
//   all            PRECHARGE of all banks        pre B     of one
//   ref            REFRESH                       mode A    MODE REGISTER SET
//   act B R        ACTIVATE                      read B C  READ
//   write B C D    WRITE of D, then D + 1        drive N   drive the data pins for N cycles
//   end            of a script: prints what was read, and what is wrong; the chip is new
#include <iostream>
#include <memory>
#include <sstream>

#include "chip.h"

int main() {
    auto chip = std::make_unique<Chip>();
    std::string line, read;
    std::vector<uint16_t> pending;  // words of a write
    uint64_t read_until = 0, driven_until = 0;
    auto edge = [&](unsigned code, unsigned ba = 0, unsigned a = 0) {
        ChipPins pins = {true, false, bool(code & 4), bool(code & 2), bool(code & 1), ba, a, 0, 0,
                         false};
        if (!pending.empty()) {
            pins.dq = pending.front(), pins.dq_driven = true;
            pending.erase(pending.begin());
        }
        if (chip->cycle() < driven_until) pins.dq_driven = true;
        chip->edge(pins);
        // What stands on the pins T_CAS cycles behind a READ, and one later.
        if (chip->cycle() + 1 >= read_until && chip->cycle() - 1 < read_until)
            read += " " + std::to_string(chip->dq);
    };
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string name;
        unsigned x = 0, y = 0, z = 0;
        words >> name >> x >> y >> z;
        if (name == "nop") while (x--) edge(7);
        if (name == "all") edge(2, 0, 1 << 10);
        if (name == "pre") edge(2, x);
        if (name == "ref") edge(1);
        if (name == "mode") edge(0, 0, x);
        if (name == "act") edge(3, x, y);
        if (name == "read") read_until = chip->cycle() + T_CAS + 2, edge(5, x, y);
        if (name == "write") pending = {uint16_t(z), uint16_t(z + 1)}, edge(4, x, y);
        if (name == "drive") driven_until = chip->cycle() + x;
        if (name == "end") {
            std::cout << "read" << read << "\n" << chip->report() << std::endl;
            chip = std::make_unique<Chip>();
            read.clear(), pending.clear();
            read_until = driven_until = 0;
        }
    }
}
