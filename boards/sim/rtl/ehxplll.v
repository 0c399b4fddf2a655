// Stands for the ECP5's phase-locked loop: the simulator sets its clocks and says when it is locked.
module EHXPLLL(
    input CLKI, CLKFB, RST, STDBY, PHASESEL1, PHASESEL0, PHASEDIR, PHASESTEP, PHASELOADREG,
          PLLWAKESYNC, ENCLKOP, ENCLKOS,
    output CLKOP, CLKOS, LOCK
);
    parameter CLKI_DIV = 1, CLKFB_DIV = 1, CLKOP_DIV = 8, CLKOS_DIV = 8;
    parameter CLKOP_CPHASE = 0, CLKOS_CPHASE = 0, CLKOP_FPHASE = 0, CLKOS_FPHASE = 0;
    parameter CLKOP_ENABLE = "ENABLED", CLKOS_ENABLE = "DISABLED", FEEDBK_PATH = "CLKOP";
    parameter PLLRST_ENA = "DISABLED", INTFB_WAKE = "DISABLED", STDBY_ENABLE = "DISABLED";
    parameter DPHASE_SOURCE = "DISABLED", OUTDIVIDER_MUXA = "DIVA", OUTDIVIDER_MUXB = "DIVB";
    parameter OUTDIVIDER_MUXC = "DIVC", OUTDIVIDER_MUXD = "DIVD";

    reg fast /*verilator public_flat_rw*/ = 1'b0;
    reg slow /*verilator public_flat_rw*/ = 1'b0;
    reg locked /*verilator public_flat_rw*/ = 1'b0;
    assign CLKOP = fast;
    assign CLKOS = slow;
    assign LOCK = locked;

    initial begin
        if (CLKOP_CPHASE != CLKOP_DIV - 1 || CLKOS_CPHASE != CLKOS_DIV - 1)
            $fatal(1, "EHXPLLL: the outputs of this model have their edges together");
        if (CLKOS_DIV != CLKOP_DIV && CLKOS_DIV != 2 * CLKOP_DIV)
            $fatal(1, "EHXPLLL: this model has one clock, or one and a half of it");
    end
endmodule
