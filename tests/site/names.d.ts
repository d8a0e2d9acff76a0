// The names that files of the site define in a page, one file each.
declare var worklogPrograms: Record<string, string | string[]>;
declare var worklogAccesses: Record<string, string>;
declare var worklogWidgets: Record<string, { show(place: HTMLElement): Promise<void> }>;
declare var worklogData: string;
declare var worklogCatalogue: LiveRung[];
declare var emulatorParts: { core: string; layouts: Layouts; worker: string };
// JupyterLab's list of prebuilt extensions.
declare var _JUPYTERLAB: Record<string, unknown>;

// worklog.emulator.portable.layouts
type Layouts = { records: Record<string, RecordLayout>; [name: string]: unknown };
type RecordLayout = { size: number; fields: Record<string, [number, string, number]> };

// worklog.site.live.catalogue
type LiveRung = { name: string; idea: string; tiles: LiveKernel[]; mistakes: LiveKernel[] };
type LiveKernel = {
    name: string;
    about: string;
    file: string;
    sizes: { size: string; blocks: number; outside: boolean }[];
    start: number;
};
